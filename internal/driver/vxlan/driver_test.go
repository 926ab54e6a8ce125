package vxlan_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/driver/vxlan"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/golden"
)

var (
	addr   = netip.MustParseAddr
	prefix = netip.MustParsePrefix
	dual   = []model.Subnet{{Prefix: prefix("10.9.0.0/24")}, {Prefix: prefix("fd00:9::/64")}}
	web    = model.Endpoint{Name: "web", Network: "net", Sandbox: "/run/netns/web",
		Addresses: []netip.Addr{addr("10.9.0.2"), addr("fd00:9::102")}}

	// self is this host and other its peer, over IPv4 and over IPv6.
	self = model.Peer{Address: addr("192.0.2.1"),
		Ranges: []netip.Prefix{prefix("10.9.0.0/25"), prefix("fd00:9::100/120")}}
	other = model.Peer{Address: addr("192.0.2.2"),
		Ranges: []netip.Prefix{prefix("10.9.0.128/25"), prefix("fd00:9::200/120")},
		Endpoints: []model.PeerEndpoint{{Addresses: []netip.Addr{addr("10.9.0.130"), addr("fd00:9::202")}},
			{Addresses: []netip.Addr{addr("10.9.0.131")}, MAC: "02:00:00:00:00:07"}}}
	peers = []model.Peer{self, other}
)

// facts returns the facts of a host with two links.
func facts() plan.Facts {
	eth0 := plan.HostLink{Name: "eth0", Encap: "ether", Up: true, MTU: 1500,
		Addresses: []netip.Prefix{prefix("192.0.2.1/24"), prefix("2001:db8::1/64"), prefix("fe80::9/64")}}
	eth1 := plan.HostLink{Name: "eth1", Encap: "ether", Up: true, MTU: 9000,
		Addresses: []netip.Prefix{prefix("198.51.100.1/24")}}
	to := func(l plan.HostLink, source string) plan.HostLink { l.Source = addr(source); return l }
	return plan.Facts{Links: map[string]plan.HostLink{
		"eth0": eth0, "eth1": eth1, "192.0.2.1": eth0, "2001:db8::1": eth0, "198.51.100.1": eth1,
		"192.0.2.2": to(eth0, "192.0.2.1"), "2001:db8::2": to(eth0, "2001:db8::1"),
		"198.51.100.2": to(eth1, "198.51.100.1"),
		"239.0.0.99":   eth0,
	}}
}

// overlay returns an overlay of these peers, with a change.
func overlay(change func(*model.Overlay)) model.Overlay {
	o := model.Overlay{VNI: 42, Peers: slices.Clone(peers)}
	if change != nil {
		change(&o)
	}
	return o
}

func v6(o *model.Overlay) {
	o.Peers[0].Address, o.Peers[1].Address = addr("2001:db8::1"), addr("2001:db8::2")
}

func TestPlan(t *testing.T) {
	for name, c := range map[string]struct {
		overlay model.Overlay
		subnets []model.Subnet
	}{
		"over IPv4":    {overlay(nil), dual},
		"over IPv6":    {overlay(v6), dual},
		"another port": {overlay(func(o *model.Overlay) { o.Port, o.Underlays = 8472, []string{"eth0"} }), dual},
		"two underlays": {overlay(func(o *model.Overlay) {
			o.Peers[0].Further, o.Peers[1].Further = []netip.Addr{addr("198.51.100.1")},
				[]netip.Addr{addr("198.51.100.2")}
		}), dual},
		"an address": {overlay(func(o *model.Overlay) { o.Underlays = []string{"192.0.2.1"} }), dual},
		"a group": {model.Overlay{VNI: 42, Group: addr("239.0.0.99"), Underlays: []string{"eth0"}},
			[]model.Subnet{{Prefix: dual[0].Prefix, Range: self.Ranges[0]},
				{Prefix: dual[1].Prefix, Range: self.Ranges[1]}}},
		"encrypted": {overlay(func(o *model.Overlay) { o.Encrypt, o.KeyFile = true, "/etc/fairlead/net.key" }),
			dual},
		"encrypted IPv6": {overlay(func(o *model.Overlay) {
			v6(o)
			o.Encrypt, o.KeyFile = true, "/etc/fairlead/net.key"
		}), dual},
	} {
		t.Run(name, func(t *testing.T) {
			n := model.Network{Name: "net", Driver: model.DriverVXLAN, Subnets: c.subnets, Overlay: c.overlay}
			if err := (model.State{Networks: []model.Network{n}}).Validate(); err != nil {
				t.Fatal(err)
			}
			if err := (vxlan.Driver{}).Validate(n, facts()); err != nil {
				t.Fatal(err)
			}
			n = vxlan.Driver{}.Complete(n, facts())
			p := append(vxlan.Driver{}.Network(n, facts()), vxlan.Driver{}.Endpoint(n, web)...)
			golden.Text(t, name, golden.Session(p))
		})
	}
}

// TestMTU checks the MTU that is derived from the routes to the peers.
func TestMTU(t *testing.T) {
	encrypt := func(o *model.Overlay) { o.Encrypt, o.KeyFile = true, "/key" }
	for name, c := range map[string]struct {
		overlay  model.Overlay
		underlay int
		want     int
	}{
		"IPv4":           {overlay(nil), 1500, 1450},
		"IPv6":           {overlay(v6), 1500, 1430},
		"jumbo":          {overlay(nil), 9000, 8950},
		"encrypted IPv4": {overlay(encrypt), 1500, 1500 - 60 - 70},
		"encrypted IPv6": {overlay(func(o *model.Overlay) { v6(o); encrypt(o) }), 1500, 1500 - 80 - 70},
		"loopback":       {overlay(nil), 65536, 65485},
	} {
		f := facts()
		for name, l := range f.Links {
			l.MTU = c.underlay
			f.Links[name] = l
		}
		n := model.Network{Name: "net", Subnets: dual, Overlay: c.overlay}
		if got := (vxlan.Driver{}).Complete(n, f).MTU; got != c.want {
			t.Errorf("%s: an underlay of %d bytes leaves %d, want %d", name, c.underlay, got, c.want)
		}
		n.MTU = c.want + 1
		if err := (vxlan.Driver{}).Validate(n, f); err == nil || !strings.Contains(err.Error(), "largest that fits") {
			t.Errorf("%s: an mtu of %d is accepted: %v", name, n.MTU, err)
		}
		n.MTU = c.want
		if err := (vxlan.Driver{}).Validate(n, f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSmallMTU plans an encrypted network whose own MTU is small. Its tunnel needs IPv6 on the WireGuard link.
func TestSmallMTU(t *testing.T) {
	n := model.Network{Name: "net", MTU: 1000, Subnets: dual[:1],
		Overlay: overlay(func(o *model.Overlay) { o.Encrypt, o.KeyFile = true, "/key" })}
	if err := (vxlan.Driver{}).Validate(n, facts()); err != nil {
		t.Fatal(err)
	}
	for _, o := range (vxlan.Driver{}).Network(n, facts()) {
		switch o := o.(type) {
		case plan.WireGuard:
			if o.MTU != 1280 {
				t.Errorf("the WireGuard link has an MTU of %d bytes", o.MTU)
			}
		case plan.Tunnel:
			if o.MTU != 1000 {
				t.Errorf("the VXLAN link has an MTU of %d bytes", o.MTU)
			}
		}
	}
}

// TestNarrowUnderlay checks the smallest underlay of overlays with IPv4 inside.
func TestNarrowUnderlay(t *testing.T) {
	encrypt := func(o *model.Overlay) { o.Encrypt, o.KeyFile = true, "/key" }
	for name, c := range map[string]struct {
		overlay model.Overlay
		least   int
	}{
		"IPv4":           {overlay(encrypt), 1340},
		"IPv6":           {overlay(func(o *model.Overlay) { v6(o); encrypt(o) }), 1360},
		"not encrypted":  {overlay(nil), 0},
		"of the cluster": {overlay(func(o *model.Overlay) { encrypt(o); o.UnderlayMTU = 1340 }), 1340},
	} {
		f := facts()
		for name, l := range f.Links {
			l.MTU = 1339
			if c.least == 1360 {
				l.MTU = 1359
			}
			f.Links[name] = l
		}
		n := model.Network{Name: "net", Subnets: dual[:1], Overlay: c.overlay}
		n = (vxlan.Driver{}).Complete(n, f)
		err := (vxlan.Driver{}).Validate(n, f)
		if want := fmt.Sprintf("raise the underlay's mtu to %d", c.least); c.least > 0 &&
			(err == nil || !strings.Contains(err.Error(), want)) || c.least == 0 && err != nil {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		for name, l := range f.Links {
			l.MTU++
			f.Links[name] = l
		}
		n.MTU = 0
		if err := (vxlan.Driver{}).Validate((vxlan.Driver{}).Complete(n, f), f); err != nil {
			t.Errorf("%s: with one byte more: %v", name, err)
		}
	}
}

func TestRefuses(t *testing.T) {
	set := func(change func(*model.Overlay)) func(*model.Network) {
		return func(n *model.Network) { change(&n.Overlay) }
	}
	for name, c := range map[string]struct {
		change func(*model.Network)
		want   string
	}{
		"no subnet":         {func(n *model.Network) { n.Subnets = nil }, "a vxlan network needs a subnet"},
		"no kernel support": {set(func(o *model.Overlay) { o.Encrypt = true }), "encrypt: modprobe wireguard"},
		"no IPv6": {set(func(o *model.Overlay) { o.Encrypt = true }),
			"encrypt: boot without ipv6.disable=1"},
		"no route": {set(func(o *model.Overlay) { o.Peers[1].Address = addr("203.0.113.9") }),
			"peer 203.0.113.9: no route to it"},
		"a foreign address": {set(func(o *model.Overlay) { o.Underlays = []string{"192.0.2.2"} }),
			"this host does not have the address"},
		"the other family": {set(func(o *model.Overlay) { o.Underlays = []string{"2001:db8::1"} }),
			"the hosts of this overlay use IPv4"},
		"no such address": {set(func(o *model.Overlay) { v6(o); o.Underlays = []string{"eth1"} }),
			"the link has no IPv6 address"},
		"no such underlay": {set(func(o *model.Overlay) { o.Underlays = []string{"ib0"} }),
			"no such link or address"},
		"two for a group": {set(func(o *model.Overlay) {
			o.Group, o.Underlays = addr("239.0.0.99"),
				[]string{"eth0", "eth1"}
		}), "a multicast group needs exactly one"},
		"no route to group": {set(func(o *model.Overlay) { o.Group = addr("239.0.0.1") }),
			"no route to it: name the link"},
		"another range": {func(n *model.Network) {
			n.Subnets = []model.Subnet{{Prefix: dual[0].Prefix,
				Range: other.Ranges[0]}}
		}, "leave range and address out"},
		"no range": {set(func(o *model.Overlay) { o.Peers = []model.Peer{{Address: other.Address}} }),
			"needs its own part of the subnet"},
		"an MTU for IPv6": {set(func(o *model.Overlay) { o.Peers[1].Address = addr("192.0.2.3") }),
			"raise the underlay's mtu to 1330"},
		"filter without one": {func(n *model.Network) { n.Filter = model.FilterOn }, "modprobe br_netfilter"},
	} {
		f := facts()
		f.Links["192.0.2.3"] = plan.HostLink{Name: "eth0", MTU: 1280}
		f.Missing = map[plan.Feature]string{plan.FeatureBridgeFilter: "modprobe br_netfilter"}
		switch name {
		case "no kernel support":
			f.Missing[plan.FeatureWireGuard] = "modprobe wireguard"
		case "no IPv6":
			f.Missing[plan.FeatureIPv6] = "boot without ipv6.disable=1"
		}
		n := model.Network{Name: "net", Driver: model.DriverVXLAN, Subnets: slices.Clone(dual), Overlay: overlay(nil)}
		c.change(&n)
		if err := (vxlan.Driver{}).Validate(n, f); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

// TestLocalIsTheListedAddress checks a host with two addresses on the underlay.
func TestLocalIsTheListedAddress(t *testing.T) {
	f := facts()
	eth0 := f.Links["eth0"]
	eth0.Addresses = append([]netip.Prefix{prefix("192.0.2.77/24")}, eth0.Addresses...)
	f.Links["eth0"], f.Links["192.0.2.1"] = eth0, eth0
	n := model.Network{Name: "net", Subnets: dual,
		Overlay: overlay(func(o *model.Overlay) { o.Underlays = []string{"eth0"} })}
	p := vxlan.Driver{}.Network(vxlan.Driver{}.Complete(n, f), f)
	i := slices.IndexFunc(p, func(o plan.Object) bool { _, is := o.(plan.Tunnel); return is })
	if got := p[i].(plan.Tunnel).Local; got != self.Address {
		t.Errorf("the tunnel's source address is %s, and the peers' list has %s", got, self.Address)
	}
}

// TestOneListServesAllHosts plans the same network on both hosts.
func TestOneListServesAllHosts(t *testing.T) {
	n := model.Network{Name: "net", Subnets: dual, Overlay: overlay(nil)}
	other := facts()
	eth0 := other.Links["192.0.2.2"]
	eth0.Addresses, eth0.Source = []netip.Prefix{prefix("192.0.2.2/24")}, addr("192.0.2.2")
	other.Links["192.0.2.1"], other.Links["192.0.2.2"] = eth0, eth0
	first, second := vxlan.Driver{}.Complete(n, facts()), vxlan.Driver{}.Complete(n, other)
	for i, want := range [][2]string{{"10.9.0.1", "10.9.0.128"}, {"fd00:9::100", "fd00:9::200"}} {
		if got := [2]string{first.Subnets[i].HostAddress().String(),
			second.Subnets[i].HostAddress().String()}; got != want {
			t.Errorf("the hosts' addresses are %v, want %v", got, want)
		}
	}
	if dual[0].Range.IsValid() {
		t.Error("Complete changes its argument")
	}
}

func TestAttachment(t *testing.T) {
	n := vxlan.Driver{}.Complete(model.Network{Name: "net", Subnets: dual, Overlay: overlay(nil)}, facts())
	at := vxlan.Driver{}.Attachment(n, web)
	if at.Link != "fl-net" || at.Port != "fv-web" || !slices.Equal(at.Addresses, web.Addresses) ||
		!slices.Equal(at.Bypass, []plan.Bypass{plan.Within(dual[0].Prefix), plan.Within(dual[1].Prefix)}) {
		t.Errorf("wrong attachment: %+v", at)
	}
}
