package plan_test

import (
	"testing"

	"fairlead/internal/plan"
	"fairlead/test/golden"
)

func TestDiffOfOverlays(t *testing.T) {
	mac := "02:f1:0a:09:00:82"
	tunnel := plan.Tunnel{Name: "fx-net", VNI: 42, Port: 4789, Local: addr("192.0.2.1"), Learning: true, MTU: 1450,
		MAC: "02:f1:0a:09:00:01", Owner: "net", Master: "fl-net"}
	tunnelWith := func(change func(*plan.Tunnel)) plan.Tunnel { t := tunnel; change(&t); return t }
	floods := plan.Forwarding{Link: "fx-net", MAC: plan.Unknown, Remote: addr("192.0.2.2")}
	known := plan.Forwarding{Link: "fx-net", MAC: mac, Remote: addr("192.0.2.2")}
	moved := plan.Forwarding{Link: "fx-net", MAC: mac, Remote: addr("192.0.2.3")}
	neighbor := plan.Neighbor{Link: "fl-net", Addr: addr("10.9.0.130"), MAC: mac}
	renewed := plan.Neighbor{Link: "fl-net", Addr: addr("10.9.0.130"), MAC: "02:00:00:00:00:07"}
	wireGuard := plan.WireGuard{Name: "fw-net", KeyFile: "/etc/fairlead/net.key", Local: addr("192.0.2.1"), Port: 51820,
		MTU: 1440, Owner: "net"}
	elsewhere := wireGuard
	elsewhere.Port = 51821
	foreign := plan.Link{Name: "fw-net", Kind: plan.Bridge, Owner: "net"}
	all := plan.Plan{tunnel, floods, known, neighbor}
	for _, c := range []struct {
		name       string
		have, want plan.Plan
	}{
		{"overlay's MTU changes in place", all,
			plan.Plan{tunnelWith(func(t *plan.Tunnel) { t.MTU = 8950 }), floods, known, neighbor}},
		{"overlay's VNI changes by recreation", all,
			plan.Plan{tunnelWith(func(t *plan.Tunnel) { t.VNI = 43 }), floods, known, neighbor}},
		{"overlay's host removed", all, plan.Plan{tunnel}},
		{"sandbox moves to another host", all, plan.Plan{tunnel, floods, moved, renewed}},
		{"overlay's WireGuard port changes in place", plan.Plan{wireGuard}, plan.Plan{elsewhere}},
		{"overlay's WireGuard link replaces a foreign link", plan.Plan{foreign}, plan.Plan{wireGuard}},
	} {
		t.Run(c.name, func(t *testing.T) {
			golden.Text(t, "diff "+c.name, plan.Text(plan.Diff(c.have, c.want)))
		})
	}
}
