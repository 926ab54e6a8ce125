package drivertest

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/driver"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

var addr, prefix = netip.MustParseAddr, netip.MustParsePrefix

// LAN are subnets of the LAN behind the parent eth0.
var LAN = []model.Subnet{{Prefix: prefix("192.0.2.0/24"), Range: prefix("192.0.2.128/25")},
	{Prefix: prefix("2001:db8:2::/64")}}

// Web and app are endpoints on the LAN.
var (
	Web = model.Endpoint{Name: "web", Network: "net", Sandbox: "/run/netns/web",
		Addresses: []netip.Addr{addr("192.0.2.128"), addr("2001:db8:2::80")}}
	app = model.Endpoint{Name: "app", Network: "net", Sandbox: "/run/netns/app",
		Addresses: []netip.Addr{addr("192.0.2.129"), addr("2001:db8:2::81")}}
)

// OnLAN returns a network of a driver whose parent is eth0, with changes.
func OnLAN(d driver.Driver, changes ...func(*model.Network)) model.Network {
	n := model.Network{Name: "net", Driver: d.Name(), Parent: "eth0", Subnets: LAN}
	for _, change := range changes {
		change(&n)
	}
	return n
}

// V4 keeps the subnet with IPv4 addresses.
func V4(n *model.Network) { n.Subnets = LAN[:1] }

// Only returns the endpoint with one of its addresses.
func Only(e model.Endpoint, i int) []model.Endpoint {
	e.Addresses = e.Addresses[i : i+1]
	return []model.Endpoint{e}
}

// Parent returns the facts of a host with the link eth0, with changes.
func Parent(changes ...func(*plan.HostLink)) plan.Facts {
	l := plan.HostLink{Name: "eth0", Encap: "ether", Up: true, MTU: 1400,
		Addresses: []netip.Prefix{prefix("192.0.2.7/24"), prefix("2001:db8:2::7/64"), prefix("fe80::7/64")}}
	for _, change := range changes {
		change(&l)
	}
	return plan.Facts{Links: map[string]plan.HostLink{"eth0": l}}
}

// SubLinks returns what drivers plan and refuse whose sandboxes get sub-links of a parent.
func SubLinks(d driver.Driver) Suite {
	bare := model.Endpoint{Name: "web", Network: "net", Sandbox: "/run/netns/web", Interface: "net1"}
	static := bare
	static.Prefixes, static.Gateways = []netip.Prefix{prefix("192.0.2.9/24")}, []netip.Addr{addr("192.0.2.1")}
	noSubnet := OnLAN(d, func(n *model.Network) { n.Subnets = nil })
	return Suite{Driver: d, Facts: Parent(), Plans: []Plan{
		{"dual stack", OnLAN(d), []model.Endpoint{Web}},
		{"two endpoints share a shim", OnLAN(d, V4), slices.Concat(Only(Web, 0), Only(app, 0))},
		{"v4 only", OnLAN(d, V4), Only(Web, 0)},
		{"v6 only", OnLAN(d, func(n *model.Network) { n.Subnets = LAN[1:] }), Only(Web, 1)},
		{"v4 endpoint in a dual network", OnLAN(d), Only(Web, 0)},
		{"own address and another gateway", OnLAN(d, func(n *model.Network) {
			n.Subnets = []model.Subnet{{Prefix: prefix("192.0.2.0/24"), Address: addr("192.0.2.6"),
				Gateway: addr("192.0.2.254")}}
		}), Only(Web, 0)},
		{"mtu", OnLAN(d, V4, func(n *model.Network) { n.MTU = 1300 }), Only(Web, 0)},
		{"vlan", OnLAN(d, V4, func(n *model.Network) { n.VLAN = 100 }), Only(Web, 0)},
		{"no subnet and no address yet", noSubnet, []model.Endpoint{bare}},
		{"no subnet but an address", noSubnet, []model.Endpoint{static}},
	}, Refusals: refusedSubLinks(d)}
}

// refusedSubLinks has an error with the reason and an alternative for each network.
func refusedSubLinks(d driver.Driver) []Refusal {
	noVLAN := Parent()
	noVLAN.Missing = map[plan.Feature]string{plan.FeatureVLAN: "load 8021q"}
	parent := func(name string, change func(*plan.HostLink), want ...string) Refusal {
		return Refusal{name, OnLAN(d), Parent(change), want}
	}
	network := func(name string, change func(*model.Network), want ...string) Refusal {
		return Refusal{Name: name, Network: OnLAN(d, change), Want: want}
	}
	return []Refusal{
		network("no parent", func(n *model.Network) { n.Parent = "" }, "needs a parent"),
		network("a parent that does not exist", func(n *model.Network) { n.Parent = "eth7" }, "no such link",
			"ip link"),
		parent("an InfiniBand parent", func(l *plan.HostLink) { l.Encap = "infiniband" }, "invalid argument",
			"driver device", "pkey"),
		parent("loopback", func(l *plan.HostLink) { l.Encap = "loopback" }, "reaches no other host", "driver bridge"),
		parent("a tunnel", func(l *plan.HostLink) { l.Encap = "none" }, "link/none", "driver routed"),
		parent("a port of a bridge", func(l *plan.HostLink) { l.Master = "br0" }, "port of br0",
			"name br0 as the parent"),
		parent("a sub-link as parent", func(l *plan.HostLink) { l.Kind = string(d.Name()) },
			"of kind "+string(d.Name())+" itself"),
		network("too large an MTU", func(n *model.Network) { n.MTU = 9000 }, "mtu 9000", "eth0 takes 1400"),
		parent("IPv6 on a narrow parent", func(l *plan.HostLink) { l.MTU = 1000 }, "1280"),
		network("the parent's own address", func(n *model.Network) {
			n.Subnets = []model.Subnet{{Prefix: prefix("192.0.2.0/24"), Address: addr("192.0.2.7")}}
		}, "192.0.2.7", "on eth0 already"),
		{"a VLAN without its module", OnLAN(d, func(n *model.Network) { n.VLAN = 5 }), noVLAN, []string{"load 8021q"}},
		network("internal", func(n *model.Network) { n.Internal = true }, "driver bridge"),
		network("a bridge's filter", func(n *model.Network) { n.Filter = model.FilterOn }, "filter on", "leave it out"),
		network("a bridge's mode", func(n *model.Network) { n.Hairpin = true }, "leave it out"),
		network("a pkey", func(n *model.Network) { n.PKey = 0x8001 }, "driver device"),
	}
}

// AttachesSubLinks tests how publish modes reach the endpoint Web. Without a subnet they do not.
func AttachesSubLinks(t *testing.T, d driver.Driver) {
	t.Helper()
	at := d.Attachment(d.Complete(OnLAN(d), Parent()), Web)
	if at.Link != "fm-net" || at.Port != "" || !slices.Equal(at.Addresses, Web.Addresses) ||
		!slices.Equal(at.Gateways, []netip.Addr{addr("192.0.2.254"), addr("2001:db8:2::ffff:ffff:ffff:ff7f")}) ||
		!slices.Equal(at.Bypass, []plan.Bypass{{From: prefix("0.0.0.0/0"), To: prefix("192.0.2.128/32")},
			{From: prefix("::/0"), To: prefix("2001:db8:2::80/128")}}) {
		t.Errorf("wrong attachment: %+v", at)
	}
	Closed(t, d, OnLAN(d, func(n *model.Network) { n.Subnets = nil }), "no subnet")
}

// Closed fails the test unless the attachment of Web is closed for a reason that contains want.
func Closed(t *testing.T, d driver.Driver, n model.Network, want string) {
	t.Helper()
	if at := d.Attachment(n, Web); at.Link != "" || !strings.Contains(at.Closed, want) {
		t.Errorf("want an attachment that is closed because of %q, got %+v", want, at)
	}
}
