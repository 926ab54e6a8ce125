package kernel

import (
	"path/filepath"
	"strings"
	"testing"

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
