package kernel

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// TestProgramsRest checks that the eBPF programs stay loaded without a pin while
// there is no port mapping, and are used again for the next one, unless another
// process of Fairlead has pinned its programs.
func TestProgramsRest(t *testing.T) {
	w := newLocalWorld(t)
	if err := w.Del(plan.LocalClients{}); err != nil {
		t.Fatal(err)
	}
	mappings := toBox("0.0.0.0", 80, "10.9.0.2")
	pins := bpffs(t)
	var hosts []*Host
	for range 2 {
		h, err := Open(w.ns.Path(), Options{Pins: filepath.Join(pins, "fairlead"), Rest: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close() })
		hosts = append(hosts, h)
	}
	mapping := func(h *Host) {
		t.Helper()
		(&localWorld{Host: h, box: w.box}).mapping(t, false, mappings...)
		if err := h.Set(plan.LocalClients{}); err != nil {
			t.Fatal(err)
		}
		c := dialer(t, w.ns, unix.SOCK_STREAM, "10.9.0.1:80")
		if err := c.connect("10.9.0.1:80"); err != nil {
			t.Fatal(err)
		}
		if said, _ := c.answer(t); said != "10.9.0.2:8080" {
			t.Errorf("reached %q", said)
		}
	}
	rest := func(h *Host) {
		t.Helper()
		(&localWorld{Host: h, box: w.box}).mapping(t, true, mappings...)
		if err := h.Del(plan.LocalClients{}); err != nil {
			t.Fatal(err)
		}
		if left, err := filepath.Glob(filepath.Join(pins, "fairlead", "*", "*", "*")); err != nil || len(left) > 0 {
			t.Errorf("pins are left: %v, %v", left, err)
		}
		if !h.ebpf.Rests() {
			t.Error("the programs do not rest")
		}
	}
	for range 2 {
		mapping(hosts[0])
		rest(hosts[0])
	}
	mapping(hosts[1])
	if have, err := hosts[0].Observe(nil, nil); err != nil ||
		!slices.ContainsFunc(have, func(o plan.Object) bool { _, is := o.(plan.EBPFMapping); return is }) {
		t.Errorf("one process does not find the port mappings of another: %v, %v", have, err)
	}
}

// bpffs mounts a bpffs for the test and returns its directory.
func bpffs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Fatal(fmt.Errorf("mount a bpffs: %w", err))
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}
