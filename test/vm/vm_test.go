package vm

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
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
	t.Parallel()
	m := Machine{Kernel: debian(t), Modules: slices.Concat(networking, []string{"xfrm_user"}),
		Tools: []string{"sh", "ip", "nft", "sysctl"}}
	said, err := m.Test(t.Context(), "fairlead/test/promises", "-test.run=^TestPromises$", "-whole",
		"-drivers=bridge,ipvlan")
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
}

// TestOtherKernels checks that guests run Debian's kernels and not the host's, with links of the
// loaded modules.
func TestOtherKernels(t *testing.T) {
	t.Parallel()
	host, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	for want, kernel := range map[string]Kernel{"6.1.": debian(t), "6.12.": backported(t)} {
		m := Machine{Kernel: kernel, Modules: []string{"veth"}, Tools: []string{"sh", "ip"}}
		said, err := m.Run(t.Context(), "sh", "-ec",
			"read release </proc/sys/kernel/osrelease; echo $release; ip link add type veth; ip -o link")
		if err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
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
}

// TestFailuresAreReported makes tests and a machine fail.
func TestFailuresAreReported(t *testing.T) {
	t.Parallel()
	m := Machine{Kernel: debian(t), Tools: []string{"sh"}}
	tests := func(flag string) func() (string, error) {
		return func() (string, error) { return m.Test(t.Context(), "fairlead/test/vm/testdata/selftest", flag) }
	}
	panics := func() (string, error) { return m.Run(t.Context(), "sh", "-c", "echo c >/proc/sysrq-trigger") }
	for name, c := range map[string]struct {
		run          func() (string, error)
		want, inside string
	}{
		"a test fails":      {tests("-test.run=Fails"), "status 1", "--- FAIL: TestFails"},
		"a test is skipped": {tests("-test.run=Skips"), "skipped", "--- SKIP: TestSkips"},
		"a test hangs":      {tests("-test.run=Hangs"), "status 2", "panic: test timed out"},
		"the kernel panics": {panics, "ended before", "Kernel panic"},
	} {
		t.Run(name, func(t *testing.T) {
			said, err := c.run()
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(said, c.inside) {
				t.Errorf("error %v, want %q; output of the guest, want %q:\n%s", err, c.want, c.inside, said)
			}
		})
	}
}

// TestVerdicts checks the evaluation of a guest's output.
func TestVerdicts(t *testing.T) {
	const ok, off = "\n" + StatusLine + "0\n", "[    2.0] reboot: Power down\n"
	for said, want := range map[string]string{
		"=== RUN   TestA\nPASS\n" + ok + off:            "",
		"testing: no tests to run\nPASS\n" + ok:         "no test ran in the guest",
		"=== RUN   TestA\n    --- SKIP: TestA/b\n" + ok: "a test was skipped in the guest",
		"=== RUN   TestA\nFAIL\n\nguest: exit status 1": "the guest's command failed with status 1",
		"=== RUN   TestA\n" + off:                       "the guest ended before its command did",
		"=== RUN   TestA\nsays guest: exit status 0":    "the guest ended before its command did",
		ok + "=== RUN   TestA\n\n" + StatusLine + "2\n": "the guest's command failed with status 2",
	} {
		got := ""
		if err := errors.Join(status(said), ran(said)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q returns %q, want %q", said, got, want)
		}
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
