package macvlan_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/driver/macvlan"
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
	n := model.Network{Name: "net", Driver: model.DriverMacvlan, Parent: "eth0", Subnets: lan}
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
		{"private", network(func(n *model.Network) { n.Subnets, n.Mode = lan[:1], model.ModePrivate }),
			[]model.Endpoint{only(web, 0)}},
		{"vepa", network(func(n *model.Network) { n.Subnets, n.Mode = lan[:1], model.ModeVEPA }),
			[]model.Endpoint{only(web, 0)}},
		{"passthru", network(func(n *model.Network) { n.Subnets, n.Mode = lan[:1], model.ModePassthru }),
			[]model.Endpoint{only(web, 0)}},
		{"vlan", network(func(n *model.Network) { n.Subnets, n.VLAN = lan[:1], 100 }), []model.Endpoint{only(web, 0)}},
		{"no subnet and no address yet", network(func(n *model.Network) { n.Subnets = nil }), []model.Endpoint{bare}},
		{"no subnet but an address", network(func(n *model.Network) { n.Subnets = nil }), []model.Endpoint{static}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := (macvlan.Driver{}).Validate(c.network, facts); err != nil {
				t.Fatal(err)
			}
			full := macvlan.Driver{}.Complete(c.network, facts)
			parts := []plan.Part{plan.NewPart(macvlan.Driver{}.Network(full, facts))}
			for _, e := range c.endpoints {
				parts = append(parts, plan.NewPart(macvlan.Driver{}.Endpoint(full, e)))
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
		{"a wireless parent", whole, link(func(l *plan.HostLink) { l.Wireless = true }),
			[]string{"wireless", "ipvlan in mode l2"}},
		{"a port of a bridge", whole, link(func(l *plan.HostLink) { l.Master = "br0" }),
			[]string{"port of br0", "name br0 as the parent"}},
		{"a macvlan as parent", whole, link(func(l *plan.HostLink) { l.Kind = "macvlan" }),
			[]string{"of kind macvlan itself"}},
		{"too large an MTU", network(func(n *model.Network) { n.MTU = 9000 }), facts,
			[]string{"mtu 9000", "eth0 takes 1400"}},
		{"IPv6 on a narrow parent", whole, link(func(l *plan.HostLink) { l.MTU = 1000 }), []string{"1280"}},
		{"the parent's own address", network(func(n *model.Network) {
			n.Subnets = []model.Subnet{{Prefix: prefix("192.0.2.0/24"), Address: addr("192.0.2.7")}}
		}), facts, []string{"192.0.2.7", "on eth0 already"}},
		{"a VLAN without its module", network(func(n *model.Network) { n.VLAN = 5 }),
			plan.Facts{Links: facts.Links, Missing: map[plan.Feature]string{plan.FeatureVLAN: "load 8021q"}},
			[]string{"load 8021q"}},
		{"an unknown mode", network(func(n *model.Network) { n.Mode = model.ModeL2 }), facts,
			[]string{"want bridge, private, vepa or passthru"}},
		{"internal", network(func(n *model.Network) { n.Internal = true }), facts, []string{"driver bridge"}},
		{"a bridge's filter", network(func(n *model.Network) { n.Filter = model.FilterOn }), facts,
			[]string{"filter on", "leave it out"}},
		{"a bridge's mode", network(func(n *model.Network) { n.Hairpin = true }), facts, []string{"leave it out"}},
		{"a pkey", network(func(n *model.Network) { n.PKey = 0x8001 }), facts, []string{"driver device"}},
	} {
		err := (macvlan.Driver{}).Validate(c.network, c.facts)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want an error with %q", c.what, err, want)
			}
		}
	}
}

// TestComplete checks that the host gets an address in the subnet that no other
// host has, and that the gateway is the LAN's router.
func TestComplete(t *testing.T) {
	subnet := func(p string) model.Subnet { return model.Subnet{Prefix: prefix(p)} }
	gateway := func(s model.Subnet, a string) model.Subnet { s.Gateway = addr(a); return s }
	of := func(s model.Subnet, r string) model.Subnet { s.Range = prefix(r); return s }
	host := func(addrs ...string) plan.Facts {
		l := plan.HostLink{Name: "eth0", Encap: "ether", MTU: 1500}
		for _, a := range addrs {
			l.Addresses = append(l.Addresses, prefix(a))
		}
		return plan.Facts{Links: map[string]plan.HostLink{"eth0": l}}
	}
	for _, c := range []struct {
		what          string
		facts         plan.Facts
		subnet        model.Subnet
		host, gateway string
	}{
		{"the last address is the host's", host(), subnet("192.0.2.0/24"), "192.0.2.254", "192.0.2.1"},
		{"the last address of the range", host(), of(subnet("192.0.2.0/24"), "192.0.2.16/28"), "192.0.2.31",
			"192.0.2.1"},
		{"the gateway has the last address", host(), gateway(subnet("192.0.2.0/24"), "192.0.2.254"), "192.0.2.253",
			"192.0.2.254"},
		{"the parent has the last address", host("192.0.2.254/24"), subnet("192.0.2.0/24"), "192.0.2.253", "192.0.2.1"},
		{"if the host is the router, its address is the gateway", host("192.0.2.1/24"), subnet("192.0.2.0/24"),
			"192.0.2.254", "192.0.2.254"},
		{"anycast addresses are not used", host(), subnet("2001:db8:2::/64"), "2001:db8:2::ffff:ffff:ffff:ff7f",
			"2001:db8:2::1"},
		{"anycast addresses in a small range", host(), of(subnet("2001:db8:2::/64"), "2001:db8:2::80/121"),
			"2001:db8:2::ff", "2001:db8:2::1"},
	} {
		n := macvlan.Driver{}.Complete(network(func(n *model.Network) { n.Subnets = []model.Subnet{c.subnet} }),
			c.facts)
		if s := n.Subnets[0]; s.HostAddress() != addr(c.host) || s.GatewayAddress() != addr(c.gateway) ||
			n.MTU != 1500 {
			t.Errorf("%s: %s, gateway %s, mtu %d", c.what, s.HostAddress(), s.GatewayAddress(), n.MTU)
		}
	}
}

func TestAttachment(t *testing.T) {
	full := macvlan.Driver{}.Complete(network(func(*model.Network) {}), facts)
	at := macvlan.Driver{}.Attachment(full, web)
	if at.Link != "fm-net" || at.Port != "" || !slices.Equal(at.Addresses, web.Addresses) ||
		!slices.Equal(at.Gateways, []netip.Addr{addr("192.0.2.254"), addr("2001:db8:2::ffff:ffff:ffff:ff7f")}) ||
		!slices.Equal(at.Bypass, []plan.Bypass{{From: prefix("0.0.0.0/0"), To: prefix("192.0.2.128/32")},
			{From: prefix("::/0"), To: prefix("2001:db8:2::80/128")}}) {
		t.Errorf("wrong attachment: %+v", at)
	}
	for what, n := range map[string]model.Network{
		"mode private": network(func(n *model.Network) { n.Mode = model.ModePrivate }),
		"no subnet":    network(func(n *model.Network) { n.Subnets = nil }),
	} {
		if at := (macvlan.Driver{}).Attachment(n, web); at.Link != "" || !strings.Contains(at.Closed, what) {
			t.Errorf("%s: %+v", what, at)
		}
	}
}

// TestParentOutsideTheNamespace: the parent of a container's macvlan cannot be named in
// the container.
func TestParentOutsideTheNamespace(t *testing.T) {
	parent := facts.Links["eth0"]
	parent.Kind, parent.ParentOutside = "macvlan", true
	f := plan.Facts{Links: map[string]plan.HostLink{"eth0": parent}}
	if err := (macvlan.Driver{}).Validate(network(func(*model.Network) {}), f); err != nil {
		t.Error(err)
	}
}
