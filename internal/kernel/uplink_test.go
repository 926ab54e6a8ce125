package kernel

import (
	"slices"
	"testing"

	"fairlead/internal/plan"
)

// TestDeletedUplinkIsIgnored deletes a link after the uplinks are listed and before
// the program is attached, as happens with links of container engines.
func TestDeletedUplinkIsIgnored(t *testing.T) {
	h := openTestHost(t)
	h.run(t, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "far0")
	if err := h.Set(plan.Uplinks{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Del(plan.Uplinks{}); err != nil {
			t.Error(err)
		}
	})
	found := func() plan.Plan {
		t.Helper()
		p, err := h.ObservePart(plan.Plan{plan.Uplinks{}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	h.run(t, "ip", "link", "add", "up1", "type", "veth", "peer", "name", "far1")
	h.run(t, "ip", "link", "add", "up2", "type", "veth", "peer", "name", "far2")
	if got := found(); !slices.Equal(got, plan.Plan{plan.Uplinks{Found: plan.Found{Partly: true}}}) {
		t.Errorf("with new links, observed %+v", got)
	}
	links, err := h.ebpf.Uplinks()
	if err != nil {
		t.Fatal(err)
	}
	h.run(t, "ip", "link", "del", "up1")
	p, err := h.ebpf.Datapath()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.ebpf.AttachUplinks(p, links); err != nil {
		t.Error(err)
	}
	if got := found(); !slices.Equal(got, plan.Plan{plan.Uplinks{}}) {
		t.Errorf("after one was deleted, observed %+v", got)
	}
}
