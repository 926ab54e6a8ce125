package ipvlan_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/driver/ipvlan"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/golden"
)

var (
	addr, prefix = netip.MustParseAddr, netip.MustParsePrefix
	lan          = []model.Subnet{{Prefix: prefix("192.0.2.0/24"), Range: prefix("192.0.2.128/25")},
		{Prefix: prefix("2001:db8:2::/64")}}
	web = model.Endpoint{Name: "web", Network: "net", Sandbox: "/run/netns/web",
		Addresses: []netip.Addr{addr("192.0.2.128"), addr("2001:db8:2::80")}}
	app = model.Endpoint{Name: "app", Network: "net", Sandbox: "/run/netns/app",
		Addresses: []netip.Addr{addr("192.0.2.129"), addr("2001:db8:2::81")}}
	facts = plan.Facts{Links: map[string]plan.HostLink{"eth0": {Name: "eth0", Encap: "ether", Up: true,
		MTU:       1400,
		Addresses: []netip.Prefix{prefix("192.0.2.7/24"), prefix("2001:db8:2::7/64"), prefix("fe80::7/64")}}}}
)

func network(change func(*model.Network)) model.Network {
	n := model.Network{Name: "net", Driver: model.DriverIPvlan, Parent: "eth0", Subnets: lan}
	change(&n)
	return n
}

func TestPlan(t *testing.T) {
	only := func(e model.Endpoint, i int) model.Endpoint { e.Addresses = e.Addresses[i : i+1]; return e }
	bare := model.Endpoint{Name: "web", Network: "net", Sandbox: "/run/netns/web", Interface: "net1"}
	static := bare
	static.Prefixes, static.Gateways = []netip.Prefix{prefix("192.0.2.9/24")}, []netip.Addr{addr("192.0.2.1")}
	for _, c := range []struct {
		name      string
		network   model.Network
		endpoints []model.Endpoint
	}{
		{"dual stack", network(func(*model.Network) {}), []model.Endpoint{web}},
		{"two endpoints share a shim", network(func(n *model.Network) { n.Subnets = lan[:1] }),
			[]model.Endpoint{only(web, 0), only(app, 0)}},
		{"v4 only", network(func(n *model.Network) { n.Subnets = lan[:1] }), []model.Endpoint{only(web, 0)}},
		{"v6 only", network(func(n *model.Network) { n.Subnets = lan[1:] }), []model.Endpoint{only(web, 1)}},
		{"v4 endpoint in a dual network", network(func(*model.Network) {}), []model.Endpoint{only(web, 0)}},
		{"own address and another gateway", network(func(n *model.Network) {
			n.Subnets = []model.Subnet{{Prefix: prefix("192.0.2.0/24"), Address: addr("192.0.2.6"),
				Gateway: addr("192.0.2.254")}}
		}), []model.Endpoint{only(web, 0)}},
		{"mtu", network(func(n *model.Network) { n.Subnets, n.MTU = lan[:1], 1300 }), []model.Endpoint{only(web, 0)}},
		{"l3", network(func(n *model.Network) { n.Mode = model.ModeL3 }), []model.Endpoint{web}},
		{"l3s v4 only", network(func(n *model.Network) { n.Subnets, n.Mode = lan[:1], model.ModeL3S }),
			[]model.Endpoint{only(web, 0)}},
		{"vlan", network(func(n *model.Network) { n.Subnets, n.VLAN = lan[:1], 100 }), []model.Endpoint{only(web, 0)}},
		{"no subnet and no address yet", network(func(n *model.Network) { n.Subnets = nil }), []model.Endpoint{bare}},
		{"no subnet but an address", network(func(n *model.Network) { n.Subnets = nil }), []model.Endpoint{static}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := (ipvlan.Driver{}).Validate(c.network, facts); err != nil {
				t.Fatal(err)
			}
			full := ipvlan.Driver{}.Complete(c.network, facts)
			parts := []plan.Part{plan.NewPart(ipvlan.Driver{}.Network(full, facts))}
			for _, e := range c.endpoints {
				parts = append(parts, plan.NewPart(ipvlan.Driver{}.Endpoint(full, e)))
			}
			p, err := plan.Merge(parts...)
			if err != nil {
				t.Fatal(err)
			}
			golden.Text(t, c.name, golden.Session(p))
		})
	}
}

// TestRefuses checks that errors name the reason and an alternative.
func TestRefuses(t *testing.T) {
	link := func(change func(*plan.HostLink)) plan.Facts {
		l := facts.Links["eth0"]
		change(&l)
		return plan.Facts{Links: map[string]plan.HostLink{"eth0": l}}
	}
	whole := network(func(*model.Network) {})
	for _, c := range []struct {
		what    string
		network model.Network
		facts   plan.Facts
		want    []string
	}{
		{"no parent", network(func(n *model.Network) { n.Parent = "" }), facts, []string{"needs a parent"}},
		{"a parent that does not exist", network(func(n *model.Network) { n.Parent = "eth7" }), facts,
			[]string{"no such link", "ip link"}},
		{"an InfiniBand parent", whole, link(func(l *plan.HostLink) { l.Encap = "infiniband" }),
			[]string{"invalid argument", "driver device", "pkey"}},
		{"loopback", whole, link(func(l *plan.HostLink) { l.Encap = "loopback" }),
			[]string{"reaches no other host", "driver bridge"}},
		{"a tunnel", whole, link(func(l *plan.HostLink) { l.Encap = "none" }), []string{"link/none", "driver routed"}},
		{"a port of a bridge", whole, link(func(l *plan.HostLink) { l.Master = "br0" }),
			[]string{"port of br0", "name br0 as the parent"}},
		{"an ipvlan as parent", whole, link(func(l *plan.HostLink) { l.Kind = "ipvlan" }),
			[]string{"of kind ipvlan itself"}},
		{"too large an MTU", network(func(n *model.Network) { n.MTU = 9000 }), facts,
			[]string{"mtu 9000", "eth0 takes 1400"}},
		{"IPv6 on a narrow parent", whole, link(func(l *plan.HostLink) { l.MTU = 1000 }), []string{"1280"}},
		{"the parent's own address", network(func(n *model.Network) {
			n.Subnets = []model.Subnet{{Prefix: prefix("192.0.2.0/24"), Address: addr("192.0.2.7")}}
		}), facts, []string{"192.0.2.7", "on eth0 already"}},
		{"a VLAN without its module", network(func(n *model.Network) { n.VLAN = 5 }),
			plan.Facts{Links: facts.Links, Missing: map[plan.Feature]string{plan.FeatureVLAN: "load 8021q"}},
			[]string{"load 8021q"}},
		{"an unknown mode", network(func(n *model.Network) { n.Mode = model.ModeBridge }), facts,
			[]string{"want l2, l3 or l3s"}},
		{"internal", network(func(n *model.Network) { n.Internal = true }), facts, []string{"driver bridge"}},
		{"a bridge's filter", network(func(n *model.Network) { n.Filter = model.FilterOn }), facts,
			[]string{"filter on", "leave it out"}},
		{"a bridge's mode", network(func(n *model.Network) { n.Hairpin = true }), facts, []string{"leave it out"}},
		{"a pkey", network(func(n *model.Network) { n.PKey = 0x8001 }), facts, []string{"driver device"}},
	} {
		err := (ipvlan.Driver{}).Validate(c.network, c.facts)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want an error with %q", c.what, err, want)
			}
		}
	}
}

// TestCompleteGatewayOfL3 checks that in the modes l3 and l3s the host itself is the
// gateway, and not a router of the LAN.
func TestCompleteGatewayOfL3(t *testing.T) {
	for mode, gateway := range map[model.Mode]string{model.ModeL2: "192.0.2.1", model.ModeL3: "192.0.2.254",
		model.ModeL3S: "192.0.2.254"} {
		n := ipvlan.Driver{}.Complete(network(func(n *model.Network) { n.Mode = mode }), facts)
		if got := n.Subnets[0].GatewayAddress(); got != addr(gateway) ||
			n.Subnets[0].HostAddress() != addr("192.0.2.254") {
			t.Errorf("mode %s: gateway %s, the host's %s", mode, got, n.Subnets[0].HostAddress())
		}
	}
}

func TestValidateAcceptsAWirelessParent(t *testing.T) {
	wireless := facts.Links["eth0"]
	wireless.Wireless = true
	if err := (ipvlan.Driver{}).Validate(network(func(*model.Network) {}),
		plan.Facts{Links: map[string]plan.HostLink{"eth0": wireless}}); err != nil {
		t.Error(err)
	}
}

func TestAttachment(t *testing.T) {
	full := ipvlan.Driver{}.Complete(network(func(*model.Network) {}), facts)
	at := ipvlan.Driver{}.Attachment(full, web)
	if at.Link != "fm-net" || at.Port != "" || !slices.Equal(at.Addresses, web.Addresses) ||
		!slices.Equal(at.Gateways, []netip.Addr{addr("192.0.2.254"), addr("2001:db8:2::ffff:ffff:ffff:ff7f")}) ||
		!slices.Equal(at.Bypass, []plan.Bypass{{From: prefix("0.0.0.0/0"), To: prefix("192.0.2.128/32")},
			{From: prefix("::/0"), To: prefix("2001:db8:2::80/128")}}) {
		t.Errorf("wrong attachment: %+v", at)
	}
	if at := (ipvlan.Driver{}).Attachment(network(func(n *model.Network) { n.Subnets = nil }), web); at.Link != "" ||
		!strings.Contains(at.Closed, "no subnet") {
		t.Errorf("without a subnet: %+v", at)
	}
}
