package device_test

import (
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/driver/device"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/drivertest"
)

var (
	prefix = netip.MustParsePrefix
	addr   = netip.MustParseAddr
	web    = model.Endpoint{Name: "web", Network: "net", Sandbox: "/run/netns/web"}
	facts  = plan.Facts{Links: map[string]plan.HostLink{
		"ib0":          {Name: "ib0", Kind: "ipoib", Encap: "infiniband"},
		"0000:3b:00.0": {Name: "ib0", Kind: "ipoib", Encap: "infiniband"},
		"eth2":         {Name: "eth2", Encap: "ether"},
	}}
)

func TestDriver(t *testing.T) {
	static := web
	static.Prefixes = []netip.Prefix{prefix("192.0.2.7/24"), prefix("2001:db8::7/64")}
	static.Gateways = []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")}
	leased := web
	leased.Addresses = []netip.Addr{addr("192.0.2.7")}
	renamed := static
	renamed.Interface, renamed.MAC, renamed.Limit.Out = "lan", "02:00:00:00:00:07", 1_000_000_000
	refused := func(want string, n model.Network) drivertest.Refusal {
		return drivertest.Refusal{Name: want, Network: n, Want: []string{want}}
	}
	plans := func(name string, n model.Network, e model.Endpoint) drivertest.Plan {
		return drivertest.Plan{Name: name, Network: n, Endpoints: []model.Endpoint{e}}
	}
	s := drivertest.Suite{Driver: device.Driver{}, Facts: facts, Unpublished: true, Plans: []drivertest.Plan{
		plans("nic with prefixes", model.Network{Parent: "eth2"}, static),
		plans("nic with a subnet", model.Network{Parent: "eth2",
			Subnets: []model.Subnet{{Prefix: prefix("192.0.2.0/24")}}}, leased),
		plans("nic without an address", model.Network{Parent: "eth2"}, web),
		plans("virtual function", model.Network{Parent: "0000:3b:02.1", MTU: 9000}, renamed),
		plans("infiniband child", model.Network{Parent: "ib0", PKey: 0x8001}, static),
		plans("infiniband child of a card", model.Network{Parent: "0000:3b:00.0", PKey: 0x8001, MTU: 2044}, static),
	}, Refusals: []drivertest.Refusal{
		refused("needs its device as parent", model.Network{}),
		refused(`parent "et h": want the name`, model.Network{Parent: "et h"}),
		refused(`parent "../../x": want the name`, model.Network{Parent: "../../x"}),
		refused(`parent "0000:3b:0/.1": want`, model.Network{Parent: "0000:3b:0/.1"}),
		refused("a device connects to networks outside", model.Network{Parent: "eth2", Internal: true}),
		refused("mode vepa: only networks", model.Network{Parent: "eth2", Mode: model.ModeVEPA}),
		refused("vlan 7: make the VLAN's link", model.Network{Parent: "eth2", VLAN: 7}),
		refused("filter on: only networks", model.Network{Parent: "eth2", Filter: model.FilterOn}),
		refused("hairpin: only networks", model.Network{Parent: "eth2", Hairpin: true}),
		refused("0x8000 names no partition", model.Network{Parent: "ib0", PKey: 0x8000}),
		refused("a full member: write 0x8001", model.Network{Parent: "ib0", PKey: 0x0001}),
		refused("ib1: the host has no such link", model.Network{Parent: "ib1", PKey: 0x8001}),
		refused("eth2 is not an InfiniBand link (ether", model.Network{Parent: "eth2", PKey: 0x8001}),
	}}
	drivertest.Conform(t, s)
}

// TestValidateAcceptsAMovedDevice validates a network whose device is in a
// sandbox: the host has no link with that name, or another one.
func TestValidateAcceptsAMovedDevice(t *testing.T) {
	other := plan.Facts{Links: map[string]plan.HostLink{"eth2": {Name: "eth2", Kind: "bridge", Master: "bond0"}}}
	for _, f := range []plan.Facts{{}, other} {
		if err := (device.Driver{}).Validate(model.Network{Parent: "eth2"}, f); err != nil {
			t.Error(err)
		}
	}
}

func TestNothingIsPublished(t *testing.T) {
	at := device.Driver{}.Attachment(model.Network{Parent: "eth2"}, web)
	if at.Link != "" || !strings.Contains(at.Closed, "eth2") {
		t.Errorf("got %+v", at)
	}
}
