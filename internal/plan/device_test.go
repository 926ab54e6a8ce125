package plan_test

import (
	"testing"

	"fairlead/internal/plan"
	"fairlead/test/golden"
)

func TestDiffOfDevices(t *testing.T) {
	nic := plan.Device{Device: "eth2", Netns: "/run/netns/web", Name: "eth0"}
	vf := plan.Device{Device: "0000:3b:02.1", Netns: "/proc/4711/ns/net", Name: "eth0", MTU: 9000,
		MAC: "02:f1:0a:00:00:02"}
	child := plan.IPoIB{Netns: "/run/netns/web", Name: "ib0", Parent: "ib0", PKey: 0x8001, Owner: "web"}
	jumbo, moved, other, connected := nic, nic, child, child
	jumbo.MTU = 9000
	renamed := nic
	renamed.Name, renamed.MAC = "lan", "02:f1:0a:00:00:02"
	down := nic
	down.Down = true
	moved.Netns = "/run/netns/app"
	other.PKey = 0x8002
	connected.MTU = 65520
	there := inside
	there.Netns = moved.Netns
	for _, c := range []struct {
		name       string
		have, want plan.Plan
	}{
		{"device moved into a sandbox", nil, plan.Plan{nic, inside, route}},
		{"device moved back to the host", plan.Plan{nic, inside, route}, nil},
		{"device with a different MTU", plan.Plan{nic, inside}, plan.Plan{jumbo, inside}},
		{"device with a different name and address", plan.Plan{nic}, plan.Plan{renamed}},
		{"device that is down", plan.Plan{down, inside}, plan.Plan{nic, inside}},
		{"device moves to another sandbox", plan.Plan{nic, inside}, plan.Plan{moved, there}},
		{"virtual function moved into a sandbox", nil, plan.Plan{vf}},
		{"virtual function moved back to the host", plan.Plan{vf}, nil},
		{"device that the kernel moved back", plan.Plan{plan.Device{Device: "eth2", Name: "dev0"}}, nil},
		{"child of an InfiniBand link", nil, plan.Plan{child, inside}},
		{"child with a different MTU", plan.Plan{child, inside}, plan.Plan{connected, inside}},
		{"child in another partition", plan.Plan{child, inside}, plan.Plan{other, inside}},
		{"child removed", plan.Plan{child, inside}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			golden.Text(t, "diff "+c.name, plan.Text(plan.Diff(c.have, c.want)))
		})
	}
}
