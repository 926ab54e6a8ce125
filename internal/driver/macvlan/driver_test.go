package macvlan_test

import (
	"net/netip"
	"testing"

	"fairlead/internal/driver/macvlan"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/drivertest"
)

var addr, prefix = netip.MustParseAddr, netip.MustParsePrefix

// mode returns a network with IPv4 of a mode.
func mode(m model.Mode) model.Network {
	return drivertest.OnLAN(macvlan.Driver{}, drivertest.V4, func(n *model.Network) { n.Mode = m })
}

func TestDriver(t *testing.T) {
	s := drivertest.SubLinks(macvlan.Driver{})
	one := drivertest.Only(drivertest.Web, 0)
	s.Plans = append(s.Plans,
		drivertest.Plan{Name: "private", Network: mode(model.ModePrivate), Endpoints: one},
		drivertest.Plan{Name: "vepa", Network: mode(model.ModeVEPA), Endpoints: one},
		drivertest.Plan{Name: "passthru", Network: mode(model.ModePassthru), Endpoints: one})
	s.Refusals = append(s.Refusals,
		drivertest.Refusal{Name: "an unknown mode", Network: mode(model.ModeL2),
			Want: []string{"want bridge, private, vepa or passthru"}},
		drivertest.Refusal{Name: "a wireless parent", Network: drivertest.OnLAN(macvlan.Driver{}),
			Facts: drivertest.Parent(func(l *plan.HostLink) { l.Wireless = true }),
			Want:  []string{"wireless", "ipvlan in mode l2"}})
	drivertest.Conform(t, s)
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
		n := macvlan.Driver{}.Complete(drivertest.OnLAN(macvlan.Driver{},
			func(n *model.Network) { n.Subnets = []model.Subnet{c.subnet} }), c.facts)
		if s := n.Subnets[0]; s.HostAddress() != addr(c.host) || s.GatewayAddress() != addr(c.gateway) ||
			n.MTU != 1500 {
			t.Errorf("%s: %s, gateway %s, mtu %d", c.what, s.HostAddress(), s.GatewayAddress(), n.MTU)
		}
	}
}

func TestAttachment(t *testing.T) {
	drivertest.AttachesSubLinks(t, macvlan.Driver{})
	drivertest.Closed(t, macvlan.Driver{}, mode(model.ModePrivate), "mode private")
}

// TestParentOutsideTheNamespace: the parent of a container's macvlan cannot be named in
// the container.
func TestParentOutsideTheNamespace(t *testing.T) {
	parent := drivertest.Parent().Links["eth0"]
	parent.Kind, parent.ParentOutside = "macvlan", true
	f := plan.Facts{Links: map[string]plan.HostLink{"eth0": parent}}
	if err := (macvlan.Driver{}).Validate(drivertest.OnLAN(macvlan.Driver{}), f); err != nil {
		t.Error(err)
	}
}
