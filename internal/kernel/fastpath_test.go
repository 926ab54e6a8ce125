package kernel

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/plan"

	"github.com/cilium/ebpf/link"
)

// driverRuns reports whether the driver of a link runs an XDP program.
func (h *Host) driverRuns(t *testing.T, name string) bool {
	t.Helper()
	_, l, err := h.link("", name)
	if err != nil {
		t.Fatal(err)
	}
	xdp := l.Attrs().Xdp
	return xdp != nil && xdp.Attached && xdp.AttachMode == xdpDriver
}

// xdpDriver is XDP_ATTACHED_DRV of linux/if_link.h.
const xdpDriver = 1

// TestFastPathHeals has others take the fast path away, give its link another
// address, bring another link, and the process be killed.
func TestFastPathHeals(t *testing.T) {
	ns, err := NewNetns()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	pins := filepath.Join(bpffs(t), "fairlead")
	var h *Host
	t.Cleanup(func() { h.Close() })
	open := func(choice XDP) *Host { // the one before is killed
		if h != nil {
			h.Close()
		}
		if h, err = Open(ns.Path(), Options{Pins: pins, XDP: choice}); err != nil {
			t.Fatal(err)
		}
		return h
	}
	open(XDPAlways)
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
			t.Errorf("%s it is there: %v, want %v; %v", when, !want, want, err)
		}
	}
	is(h, false, "before it is set")
	set(h)
	is(h, true, "when it is set")
	detachPinned(t, pins, "fast-*")
	is(h, false, "detached by others")
	set(h)
	is(h, true, "set again")
	h.run(t, "ip", "link", "set", "up0", "address", "02:00:00:00:00:77")
	is(h, false, "with another address")
	set(h)
	next := open(XDPAlways)
	is(next, true, "for who follows")
	next.run(t, "ip", "link", "add", "up1", "type", "veth", "peer", "name", "far1")
	is(next, false, "with a new link")
	never := open(XDPNever)
	is(never, false, "when it is to be nowhere")
	if err := never.Set(plan.FastPath{}); err != nil || never.driverRuns(t, "up0") {
		t.Errorf("never: %v", err)
	}
	is(never, true, "nowhere")
	set(open(XDPAlways))
	last := open(XDPAlways)
	if err := last.Del(plan.FastPath{}); err != nil || last.driverRuns(t, "up0") || last.driverRuns(t, "far1") {
		t.Errorf("taken away: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(pins, "*", "links", "*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// detachPinned detaches the programs whose links are pinned by such a name.
func detachPinned(t *testing.T, pins, name string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(pins, "*", "links", name))
	if err != nil || len(paths) == 0 {
		t.Fatalf("the pins are %v, %v", paths, err)
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

// TestFastPathIsForCards: not for links that are software alone.
func TestFastPathIsForCards(t *testing.T) {
	h := openTestHost(t)
	h.opt.XDP = XDPAuto
	h.run(t, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "far0")
	var refused []string
	h.opt.Refused = func(link string, _ error) { refused = append(refused, link) }
	if err := h.Set(plan.FastPath{}); err != nil || h.driverRuns(t, "up0") {
		t.Errorf("set: %v", err)
	}
	h.opt.XDP = XDPAlways
	h.run(t, "ip", "link", "add", "name", "br0", "type", "bridge") // which has no XDP of its own
	for range 2 {
		if err := h.Set(plan.FastPath{}); err != nil || !h.driverRuns(t, "up0") || h.driverRuns(t, "br0") {
			t.Errorf("set: %v", err)
		}
	}
	links, _, err := h.FastPath()
	if at := slices.IndexFunc(links, func(f FastLink) bool { return f.Link == "br0" }); err != nil || len(links) != 3 || at < 0 || !strings.HasPrefix(links[at].String(), "not on br0: the driver takes no XDP program") {
		t.Errorf("it is on %v: %v", links, err)
	}
	if !slices.Equal(refused, []string{"br0"}) {
		t.Errorf("told of %v", refused)
	}
	if err := h.Del(plan.FastPath{}); err != nil {
		t.Error(err)
	}
}
