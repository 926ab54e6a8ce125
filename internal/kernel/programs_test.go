package kernel

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/plan"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// TestProgramsAreLoadedOnce asks for the features of a publish. The programs that were loaded for the answer rest without
// pins, and a step attaches them: the kernel verifies none for a second time.
func TestProgramsAreLoadedOnce(t *testing.T) {
	w := newLocalWorld(t)
	if err := w.Del(plan.LocalClients{}); err != nil {
		t.Fatal(err)
	}
	pins := filepath.Join(bpffs(t), "fairlead")
	h, err := Open(w.ns.Path(), Options{Pins: pins})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	lacks, err := h.Lacks(plan.FeatureVeth, plan.FeatureEBPF, plan.FeatureCgroupHooks)
	if err != nil || len(lacks) != 0 {
		t.Fatalf("the kernel lacks %v, %v", lacks, err)
	}
	if left, err := filepath.Glob(filepath.Join(pins, "*")); err != nil || len(left) > 0 || !h.ebpf.Rests() {
		t.Errorf("pins of programs that rest (%v): %v, %v", h.ebpf.Rests(), left, err)
	}
	next := newProgramID(t)
	if err := h.Set(plan.SandboxIngress("box0", nil)); err != nil {
		t.Fatal(err)
	}
	if err := h.Set(plan.LocalClients{}); err != nil {
		t.Fatal(err)
	}
	for name, id := range attachedPrograms(t, h) {
		if id > next {
			t.Errorf("program %s was loaded again: id %d, after %d", name, id, next)
		}
	}
	if pinned, err := filepath.Glob(filepath.Join(pins, "*", "links", "*")); err != nil || len(pinned) == 0 {
		t.Errorf("the attached programs have the pins %v, %v", pinned, err)
	}
	for _, o := range []plan.Object{plan.LocalClients{}, plan.SandboxIngress("box0", nil)} {
		if err := h.Del(o); err != nil {
			t.Error(err)
		}
	}
}

// TestProbeFor asks for a feature that needs no programs. The kernel is not asked about theirs, which is said. If a feature
// of programs is needed, the kernel is asked.
func TestProbeFor(t *testing.T) {
	facts, err := ProbeFor([]plan.Feature{plan.FeatureVeth})
	if err != nil || !facts.Has(plan.FeatureVeth) || slices.Contains(facts.Untested, plan.FeatureVeth) {
		t.Errorf("veth is missing or untested: %+v, %v", facts, err)
	}
	for _, f := range ofPrograms {
		if !slices.Contains(facts.Untested, f) {
			t.Errorf("%s is tested without need", f)
		}
	}
	facts, err = ProbeFor([]plan.Feature{plan.FeatureVeth, plan.FeatureEBPF})
	if err != nil || !facts.Has(plan.FeatureEBPF) || slices.Contains(facts.Untested, plan.FeatureEBPF) {
		t.Errorf("%s is missing or untested: %+v, %v", plan.FeatureEBPF, facts, err)
	}
}

// newProgramID returns the id of a new program. Programs that are loaded later have larger ids.
func newProgramID(t *testing.T) uint32 {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SocketFilter, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	info, err := prog.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	return uint32(id)
}

// TestLacksWithoutFiles asks for features in a process that can open few files more. The limit is the error. With more
// files, the kernel has the features.
func TestLacksWithoutFiles(t *testing.T) {
	h := openTestHost(t)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }()
	few := limit
	few.Cur = 20
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	lacks, err := h.Lacks(plan.FeatureEBPF)
	if err == nil || !strings.Contains(err.Error(), "raise the limit of open files") {
		t.Errorf("with few files, the kernel lacks %v, %v", lacks, err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if lacks, err := h.Lacks(plan.FeatureEBPF); err != nil || len(lacks) != 0 {
		t.Errorf("with enough files, the kernel lacks %v, %v", lacks, err)
	}
}

// TestServicesWithoutCgroups asks for the features of services on a host without cgroup v2, in a process with mounts of
// its own. The kernel accepts all programs there, but they cannot be attached to sockets.
func TestServicesWithoutCgroups(t *testing.T) {
	const child = "FAIRLEAD_TEST_WITHOUT_CGROUPS"
	if os.Getenv(child) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), child+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("PASS")) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Mount("none", "/sys/fs/cgroup", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	lacks, err := openTestHost(t).Lacks(ofPrograms...)
	if err != nil || len(lacks) != 1 || !strings.Contains(lacks[plan.FeatureCgroupHooks], "no cgroup v2") {
		t.Errorf("without cgroup v2, the host lacks %v, %v", lacks, err)
	}
}

// TestLacksWhileOthersTest asks for a feature with a verdict while another caller waits for the test of another one. The
// daemon asks under its mutex, so the answer must not wait.
func TestLacksWhileOthersTest(t *testing.T) {
	h := openTestHost(t)
	if lacks, err := h.Lacks(plan.FeatureEBPF); err != nil || len(lacks) != 0 {
		t.Fatalf("the kernel lacks %v, %v", lacks, err)
	}
	h.ebpf.Lock() // the test waits for it
	tested := make(chan error, 1)
	go func() {
		_, err := h.Lacks(plan.FeatureCgroupHooks)
		tested <- err
	}()
	for stacks := new(bytes.Buffer); !strings.Contains(stacks.String(), "(*Handle).Preload"); runtime.Gosched() {
		stacks.Reset()
		if err := pprof.Lookup("goroutine").WriteTo(stacks, 2); err != nil {
			t.Fatal(err)
		}
	}
	answered := make(chan error, 1)
	go func() {
		_, err := h.Lacks(plan.FeatureEBPF)
		answered <- err
	}()
	select {
	case err := <-answered:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the answer waits for the test of another feature")
	}
	h.ebpf.Unlock()
	if err := <-tested; err != nil {
		t.Error(err)
	}
}
