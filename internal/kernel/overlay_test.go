package kernel

import (
	"net/netip"
	"testing"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/plan"
)

// TestTooManyRanges gives two overlays more ranges together than the programs support. The second one is left to the
// kernel, and gets the programs when the first one is removed. Without programs (before Linux 6.6), both are.
func TestTooManyRanges(t *testing.T) {
	h := openTestHost(t)
	refused := map[string]int{}
	h.ebpf.Options().OverlayRefused = func(link string, _ error) { refused[link]++ }
	local := netip.MustParseAddr("192.0.2.1")
	many := func(link string, first netip.Addr) plan.OverlayPrograms {
		h.run(t, "ip", "link", "add", link, "type", "veth", "peer", "name", "far-"+link)
		o := plan.OverlayPrograms{Link: link, VNI: 42, Port: 4789, Local: local}
		for range 40000 {
			o.Ranges = append(o.Ranges, plan.OverlayRange{Prefix: netip.PrefixFrom(first, 32), Host: local.Next()})
			first = first.Next()
		}
		return o
	}
	one, two := many("fx-one", netip.MustParseAddr("10.1.0.0")), many("fx-two", netip.MustParseAddr("10.2.0.0"))
	has := func(o plan.OverlayPrograms) bool {
		t.Helper()
		p, err := h.ObservePart(plan.Plan{o})
		if err != nil {
			t.Fatal(err)
		}
		return len(p) == 1 && plan.Equal(p[0], o)
	}
	for _, o := range []plan.OverlayPrograms{one, two, two} {
		if err := h.Set(o); err != nil {
			t.Fatal(err)
		}
	}
	programs, err := ebpf.OpenOverlays()
	if err != nil { // the kernel handles all frames
		if !has(one) || !has(two) || len(refused) > 0 {
			t.Errorf("without programs, the overlays are healed for ever, or refused: %v", refused)
		}
		return
	}
	programs.Close()
	if !has(one) || !has(two) || refused["fx-one"] != 0 || refused["fx-two"] != 1 {
		t.Errorf("the first overlay has its ranges: %t, the second one is healed: %t, refused: %v", has(one), !has(two),
			refused)
	}
	less := two
	less.Ranges = less.Ranges[:10]
	if has(less) {
		t.Error("fewer ranges are not tried")
	}
	if err := h.Del(one); err != nil {
		t.Fatal(err)
	}
	if has(two) {
		t.Error("the second overlay does not get the programs when there is room")
	}
	if err := h.Set(two); err != nil || !has(two) || refused["fx-two"] != 1 {
		t.Errorf("with room the second overlay: %v, has its ranges: %t, refused: %v", err, has(two), refused)
	}
	if err := h.Del(two); err != nil {
		t.Error(err)
	}
}
