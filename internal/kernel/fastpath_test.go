package kernel

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/cilium/ebpf/link"
)

// driverRuns reports whether the link's driver runs an XDP program.
func (h *Host) driverRuns(t *testing.T, name string) bool {
	t.Helper()
	l, err := h.rtnl.LinkByName("", name)
	if err != nil {
		t.Fatal(err)
	}
	xdp := l.Attrs().Xdp
	return xdp != nil && xdp.Attached && xdp.AttachMode == xdpDriver
}

// xdpDriver is XDP_ATTACHED_DRV of linux/if_link.h.
const xdpDriver = 1

// TestFastPathHeals detaches the fast path, changes its link's address, adds a
// link, and kills the process. Each is noticed and repaired.
func TestFastPathHeals(t *testing.T) {
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	pins := filepath.Join(bpffs(t), "fairlead")
	var h *Host
	t.Cleanup(func() { h.Close() })
	open := func(choice datapath.XDP) *Host { // replaces the previous process
		if h != nil {
			h.Close()
		}
		if h, err = Open(ns.Path(), Options{Pins: pins, XDP: choice}); err != nil {
			t.Fatal(err)
		}
		return h
	}
	open(datapath.XDPAlways)
	h.run(t, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "far0")
	set := func(h *Host) {
		t.Helper()
		if err := h.Set(plan.FastPath{}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"up0", "far0"} {
			if !h.driverRuns(t, name) {
				t.Errorf("the driver of %s runs no program", name)
			}
		}
	}
	is := func(h *Host, want bool, when string) {
		t.Helper()
		h.Release()
		found, err := h.ObservePart(plan.Plan{plan.FastPath{}})
		if err != nil || slices.Contains(found, plan.Object(plan.FastPath{})) != want {
			t.Errorf("%s: the fast path is observed: %v, want %v; %v", when, !want, want, err)
		}
	}
	is(h, false, "before it is set")
	set(h)
	is(h, true, "after it is set")
	detachPinned(t, pins, "fl_xdp-*")
	is(h, false, "after another program detached it")
	set(h)
	is(h, true, "after it is set again")
	h.run(t, "ip", "link", "set", "up0", "address", "02:00:00:00:00:77")
	is(h, false, "with another address")
	set(h)
	next := open(datapath.XDPAlways)
	is(next, true, "in the next process")
	next.run(t, "ip", "link", "add", "up1", "type", "veth", "peer", "name", "far1")
	is(next, false, "with a new link")
	never := open(datapath.XDPNever)
	is(never, false, "when XDP is off, before it is set")
	if err := never.Set(plan.FastPath{}); err != nil || never.driverRuns(t, "up0") {
		t.Errorf("never: %v", err)
	}
	is(never, true, "when XDP is off, after it is set")
	set(open(datapath.XDPAlways))
	last := open(datapath.XDPAlways)
	if err := last.Del(plan.FastPath{}); err != nil || last.driverRuns(t, "up0") || last.driverRuns(t, "far1") {
		t.Errorf("delete: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(pins, "*", "links", "*")); len(left) != 0 {
		t.Errorf("pins are left: %v", left)
	}
}

// detachPinned detaches the programs whose link pins match the pattern.
func detachPinned(t *testing.T, pins, name string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(pins, "*", "links", name))
	if err != nil || len(paths) == 0 {
		t.Fatalf("found pins %v, %v", paths, err)
	}
	for _, path := range paths {
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Detach(); err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}

// TestFastPathIsForCards expects that XDPAuto does not select virtual links, and
// that a refused link is reported once.
func TestFastPathIsForCards(t *testing.T) {
	h := openTestHost(t)
	h.ebpf.Options().XDP = datapath.XDPAuto
	h.run(t, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "far0")
	var refused []string
	h.ebpf.Options().Refused = func(link string, _ error) { refused = append(refused, link) }
	if err := h.Set(plan.FastPath{}); err != nil || h.driverRuns(t, "up0") {
		t.Errorf("set: %v", err)
	}
	h.ebpf.Options().XDP = datapath.XDPAlways
	h.run(t, "ip", "link", "add", "name", "br0", "type", "bridge") // a bridge has no native XDP
	for range 2 {
		if err := h.Set(plan.FastPath{}); err != nil || !h.driverRuns(t, "up0") || h.driverRuns(t, "br0") {
			t.Errorf("set: %v", err)
		}
	}
	links, _, err := h.ebpf.FastPath()
	if at := slices.IndexFunc(links, func(f model.FastLink) bool { return f.Link == "br0" }); err != nil ||
		len(links) != 3 || at < 0 || !strings.HasPrefix(links[at].String(),
		"not on br0: the driver supports no XDP program") {
		t.Errorf("fast path links: %v, %v", links, err)
	}
	if !slices.Equal(refused, []string{"br0"}) {
		t.Errorf("reported %v, want br0 once", refused)
	}
	if err := h.Del(plan.FastPath{}); err != nil {
		t.Error(err)
	}
}
