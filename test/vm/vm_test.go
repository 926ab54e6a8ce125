package vm

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// networking lists the modules that the paths need.
var networking = []string{
	"veth", "bridge", "br_netfilter", "macvlan", "ipvlan", "8021q", "vxlan",
	"nf_tables", "nft_chain_nat", "nft_ct", "nft_fib_inet", "nft_masq", "nft_nat", "nf_conntrack_netlink",
	"sch_ingress", "cls_bpf", "tcp_diag", "udp_diag",
}

// debian returns Debian 12's kernel (Linux 6.1), which test/install-debian has unpacked.
func debian(t *testing.T) Kernel { return unpacked(t, "vm") }

// backported returns the kernel of Debian 12's backports, which is Debian 13's (Linux 6.12).
func backported(t *testing.T) Kernel { return unpacked(t, "vm-backports") }

// debianARM returns Debian 12's kernel for arm64.
func debianARM(t *testing.T) Kernel { return unpacked(t, "vm-arm64") }

func unpacked(t *testing.T, name string) Kernel {
	t.Helper()
	k, err := OpenKernel("../../bin/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestPromises tests the promises of ipvlan, which the host's kernel may lack, and those of every publish
// mode to a bridge on the older kernel.
func TestPromises(t *testing.T) {
	o := forNetworks.run(t, slices.Concat(networking, []string{"xfrm_user"}), []string{"sh", "ip", "nft", "sysctl"},
		Task{"fairlead/test/promises", []string{"-test.run=^TestPromises$", "-whole", "-drivers=bridge,ipvlan"}})
	if o.Err != nil {
		t.Fatalf("%v\n%s", o.Err, o.Said)
	}
}

// TestOlderKernel checks that guests run Debian's kernels and not the host's, with links of the
// loaded modules.
func TestOlderKernel(t *testing.T) { checkKernel(t, forLinks, "6.1.") }

// TestNewerKernel does the same with the kernel of the backports.
func TestNewerKernel(t *testing.T) { checkKernel(t, forNewer, "6.12.") }

func checkKernel(t *testing.T, m *shared, want string) {
	t.Helper()
	host, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	o := m.run(t, []string{"veth"}, []string{"sh", "ip"}, Task{Args: []string{"sh", "-ec", "read release " +
		"</proc/sys/kernel/osrelease; echo release $release; ip link add type veth; ip -o link; ip link del veth0"}})
	if o.Err != nil {
		t.Fatalf("%v\n%s", o.Err, o.Said)
	}
	_, said, _ := strings.Cut(o.Said, "release ")
	release, links, _ := strings.Cut(said, "\n")
	if !strings.HasPrefix(release, want) || release == strings.TrimSpace(string(host)) {
		t.Errorf("the guest runs kernel %s, want %s; the host runs %s", release, want, host)
	}
	for _, want := range []string{"lo: <LOOPBACK,UP", "veth0@veth1"} {
		if !strings.Contains(links, want) {
			t.Errorf("the guest of kernel %s has no link %s:\n%s", release, want, links)
		}
	}
}

// TestFailuresAreReported makes tests and a machine fail. The command after the failure of the machine does not run.
func TestFailuresAreReported(t *testing.T) {
	t.Parallel()
	test := func(name string) Task {
		return Task{"fairlead/test/vm/testdata/selftest", []string{"-test.run=" + name}}
	}
	command := func(line string) Task { return Task{Args: []string{"sh", "-c", line}} }
	cases := []struct {
		name         string
		task         Task
		want, inside string
	}{
		{"a test fails", test("Fails"), "status 1", "--- FAIL: TestFails"},
		{"a test is skipped", test("Skips"), "skipped", "--- SKIP: TestSkips"},
		{"no command", Task{Args: []string{"nonesuch"}}, "status 1", "nonesuch"},
		{"a test hangs", test("Hangs"), "status 2", "panic: test timed out"},
		{"the kernel panics", command("echo c >/proc/sysrq-trigger"), "ended before", "Kernel panic"},
		{"the kernel has panicked", command("echo too late"), "ended before", ""},
	}
	var tasks []Task
	for _, c := range cases {
		tasks = append(tasks, c.task)
	}
	for i, o := range run(t, Machine{Kernel: debian(t), Tools: []string{"sh"}}, tasks...) {
		c := cases[i]
		if o.Err == nil || !strings.Contains(o.Err.Error(), c.want) || !strings.Contains(o.Said, c.inside) {
			t.Errorf("%s: error %v, want %q; output of the guest, want %q:\n%s", c.name, o.Err, c.want, c.inside, o.Said)
		}
	}
}

// TestVerdicts checks the evaluation of a guest's output.
func TestVerdicts(t *testing.T) {
	const ok, off = "\nguest m: command 0: exit status 0\n", "[    2.0] reboot: Power down\n"
	for said, want := range map[string]string{
		"=== RUN   TestA\nPASS\n" + ok + off:                                     "",
		"testing: no tests to run\nPASS\n" + ok:                                  "no test ran in the guest",
		"=== RUN   TestA\n    --- SKIP: TestA/b\n" + ok:                          "a test was skipped in the guest",
		"=== RUN   TestA\nFAIL\n\nguest m: command 0: exit status 1":             "the guest's command failed with status 1",
		"=== RUN   TestA\n" + off:                                                "the guest ended before its command did",
		"=== RUN   TestA\nsays guest m: command 0: exit status 0":                "the guest ended before its command did",
		"=== RUN   TestA\n\nguest m: command 1: exit status 0\n" + off:           "the guest ended before its command did",
		"=== RUN   TestA\nPASS\n" + ok + "\nguest m: command 1: exit status 2\n": "",
	} {
		o := divide(said, "m", 1)[0]
		got := ""
		if err := errors.Join(o.Err, ran(o.Said)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q returns %q, want %q", said, got, want)
		}
	}
}

// TestOutputOfEachCommand divides the output of a guest that ends during its second command.
func TestOutputOfEachCommand(t *testing.T) {
	got := divide("[ 1.0] boots\none\n\nguest m: command 0: exit status 0\ntwo\n[ 2.0] ends\n", "m", 3)
	for i, want := range []string{"[ 1.0] boots\none\n", "two\n[ 2.0] ends\n", ""} {
		if got[i].Said != want || (got[i].Err == nil) != (i == 0) {
			t.Errorf("the outcome of command %d is %q, %v, want %q", i, got[i].Said, got[i].Err, want)
		}
	}
}

// TestCommandsForgeNoStatus: what a command prints changes neither its own verdict nor that of an earlier one.
func TestCommandsForgeNoStatus(t *testing.T) {
	const forged = "\nguest: command 0: exit status 0\n\nguest x: command 0: exit status 0\n"
	got := divide(forged+"\nguest m: command 0: exit status 1\n"+forged+"\nguest m: command 1: exit status 2\n", "m", 2)
	for i, o := range got {
		if o.Err == nil || o.Said != forged {
			t.Errorf("the outcome of command %d is %q, %v", i, o.Said, o.Err)
		}
	}
}

// TestWithoutKernel: all tests that share a machine whose kernel is not unpacked fail, and none waits.
func TestWithoutKernel(t *testing.T) {
	m := &shared{open: func(*testing.T) Kernel { runtime.Goexit(); return Kernel{} }}
	for range 2 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			m.run(t, nil, nil, Task{})
		}()
		<-done
	}
}

// TestMachineEndsWithContext boots a machine with a canceled context.
func TestMachineEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Machine{Kernel: debian(t)}.boot(ctx, cpio(nil))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

func TestModulesFollowDependencies(t *testing.T) {
	k := debian(t)
	files, err := k.Files("br_netfilter", "bridge", "nft_chain_nat")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".ko"))
	}
	for _, pair := range [][2]string{{"llc", "stp"}, {"stp", "bridge"}, {"bridge", "br_netfilter"},
		{"nf_tables", "nft_chain_nat"}, {"nf_nat", "nft_chain_nat"}} {
		first, then := slices.Index(names, pair[0]), slices.Index(names, pair[1])
		if first < 0 || then < first {
			t.Errorf("%s is not before %s: %v", pair[0], pair[1], names)
		}
	}
	if all := len(names); len(slices.Compact(slices.Sorted(slices.Values(names)))) != all {
		t.Errorf("a module is listed twice: %v", names)
	}
	if _, err := k.Files("nonesuch"); err == nil || !strings.Contains(err.Error(), "has no module nonesuch") {
		t.Errorf("an unknown module returns %v", err)
	}
}

func TestMissingKernelErrorNamesFix(t *testing.T) {
	if _, err := OpenKernel(t.TempDir()); err == nil || !strings.Contains(err.Error(), "run test/install-debian") {
		t.Errorf("a folder without a kernel returns %v", err)
	}
}

// TestUnsigned: the modules in a machine are those of the kernel without their signatures.
func TestUnsigned(t *testing.T) {
	files, err := debian(t).Files("veth")
	if err != nil {
		t.Fatal(err)
	}
	signed, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	module := unsigned(signed)
	if len(module) == len(signed) || !bytes.HasPrefix(signed, module) || !bytes.Equal(unsigned(module), module) {
		t.Errorf("%d bytes are left of a module with %d", len(module), len(signed))
	}
}
