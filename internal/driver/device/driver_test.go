package device_test

import (
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/driver/device"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/golden"
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

func TestPlan(t *testing.T) {
	static := web
	static.Prefixes = []netip.Prefix{prefix("192.0.2.7/24"), prefix("2001:db8::7/64")}
	static.Gateways = []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")}
	leased := web
	leased.Addresses = []netip.Addr{addr("192.0.2.7")}
	renamed := static
	renamed.Interface, renamed.MAC, renamed.Limit.Out = "lan", "02:00:00:00:00:07", 1_000_000_000
	for _, c := range []struct {
		name     string
		network  model.Network
		endpoint model.Endpoint
	}{
		{"nic with prefixes", model.Network{Parent: "eth2"}, static},
		{"nic with a subnet", model.Network{Parent: "eth2", Subnets: []model.Subnet{{Prefix: prefix("192.0.2.0/24")}}},
			leased},
		{"nic without an address", model.Network{Parent: "eth2"}, web},
		{"virtual function", model.Network{Parent: "0000:3b:02.1", MTU: 9000}, renamed},
		{"infiniband child", model.Network{Parent: "ib0", PKey: 0x8001}, static},
		{"infiniband child of a card", model.Network{Parent: "0000:3b:00.0", PKey: 0x8001, MTU: 2044}, static},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.network.Name, c.network.Driver = "net", model.DriverDevice
			if err := (device.Driver{}).Validate(c.network, facts); err != nil {
				t.Fatal(err)
			}
			n := device.Driver{}.Complete(c.network, facts)
			golden.Text(t, c.name, golden.Session(append(device.Driver{}.Network(n, facts),
				device.Driver{}.Endpoint(n, c.endpoint)...)))
		})
	}
}

func TestRefuses(t *testing.T) {
	for want, n := range map[string]model.Network{
		"needs its device as parent":            {},
		`parent "et h": want the name`:          {Parent: "et h"},
		`parent "../../x": want the name`:       {Parent: "../../x"},
		`parent "0000:3b:0/.1": want`:           {Parent: "0000:3b:0/.1"},
		"a device connects to networks outside": {Parent: "eth2", Internal: true},
		"mode vepa: only networks":              {Parent: "eth2", Mode: model.ModeVEPA},
		"vlan 7: make the VLAN's link":          {Parent: "eth2", VLAN: 7},
		"filter on: only networks":              {Parent: "eth2", Filter: model.FilterOn},
		"hairpin: only networks":                {Parent: "eth2", Hairpin: true},
		"0x8000 names no partition":             {Parent: "ib0", PKey: 0x8000},
		"a full member: write 0x8001":           {Parent: "ib0", PKey: 0x0001},
		"ib1: the host has no such link":        {Parent: "ib1", PKey: 0x8001},
		"eth2 is not an InfiniBand link (ether": {Parent: "eth2", PKey: 0x8001},
	} {
		if err := (device.Driver{}).Validate(n, facts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: want %q, got %v", n, want, err)
		}
	}
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
