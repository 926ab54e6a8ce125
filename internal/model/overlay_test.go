package model_test

import (
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/model"
)

// overlay returns a valid network of two hosts.
func overlay() model.Network {
	prefix := netip.MustParsePrefix
	return model.Network{Name: "net", Driver: model.DriverVXLAN,
		Subnets: []model.Subnet{subnet("10.9.0.0/24"), subnet("fd00:9::/64")},
		Overlay: model.Overlay{VNI: 42, Peers: []model.Peer{
			{Address: addr("192.0.2.1"), Ranges: []netip.Prefix{prefix("10.9.0.0/25"), prefix("fd00:9::100/120")},
				Endpoints: []model.PeerEndpoint{{Addresses: []netip.Addr{addr("10.9.0.2"), addr("fd00:9::102")}}}},
			{Address: addr("192.0.2.2"), Ranges: []netip.Prefix{prefix("10.9.0.128/25"), prefix("fd00:9::200/120")}}}}}
}

func TestValidateOverlay(t *testing.T) {
	encrypt := func(n *model.Network) { n.Overlay.Encrypt, n.Overlay.KeyFile = true, "/etc/fairlead/net.key" }
	for name, c := range map[string]struct {
		change func(*model.Network)
		want   string // part of the error; empty for none
	}{
		"two hosts": {func(*model.Network) {}, ""},
		"encrypted": {encrypt, ""},
		"a group": {func(n *model.Network) { n.Overlay.Peers, n.Overlay.Group = nil, addr("ff05::99") },
			""},
		"another driver": {func(n *model.Network) { n.Driver = model.DriverBridge },
			"overlay: only networks with driver vxlan have one, and this network has driver bridge"},
		"a device": {func(n *model.Network) { n.Driver = model.DriverDevice },
			"this network has driver device"},
		"no VNI":    {func(n *model.Network) { n.Overlay.VNI = 0 }, "vni 0: want 1 to 16777215"},
		"large VNI": {func(n *model.Network) { n.Overlay.VNI = 1 << 24 }, "vni 16777216"},
		"no peers":  {func(n *model.Network) { n.Overlay.Peers = nil }, "list the hosts as peers"},
		"no group": {func(n *model.Network) { n.Overlay.Group = addr("192.0.2.9") },
			"group 192.0.2.9: want a multicast address"},
		"no key":            {func(n *model.Network) { n.Overlay.Encrypt = true }, `key file ""`},
		"a key for nothing": {func(n *model.Network) { n.Overlay.KeyFile = "/k" }, "the overlay is not encrypted"},
		"an encrypted group": {func(n *model.Network) { encrypt(n); n.Overlay.Group = addr("239.0.0.9") },
			"WireGuard carries no multicast"},
		"encrypted, and more": {func(n *model.Network) { encrypt(n); n.Overlay.Peers[0].Further = []netip.Addr{addr("192.0.2.9")} }, "a host of an encrypted overlay has only one address"},
		"a loopback address": {func(n *model.Network) { n.Overlay.Peers[0].Address = addr("127.0.0.1") },
			"peer 127.0.0.1: want the address of a host"},
		"no address": {func(n *model.Network) { n.Overlay.Peers[0].Address = netip.Addr{} },
			"want the address of a host"},
		"a peer twice": {func(n *model.Network) { n.Overlay.Peers[0].Further = []netip.Addr{addr("192.0.2.2")} },
			"peer 192.0.2.2 is listed twice"},
		"both families": {func(n *model.Network) { n.Overlay.Peers[1].Address = addr("2001:db8::2") },
			"peer 2001:db8::2: all hosts of an overlay must use the same address family"},
		"a group and others": {func(n *model.Network) { n.Overlay.Group = addr("ff05::99") },
			"peer 192.0.2.1: all hosts"},
		"a range missing": {func(n *model.Network) { n.Overlay.Peers[0].Ranges = n.Overlay.Peers[0].Ranges[:1] },
			"want a range in each of the 2 subnets"},
		"a range elsewhere": {func(n *model.Network) {
			n.Overlay.Peers[0].Ranges[0] = netip.MustParsePrefix("10.8.0.0/25")
		},
			"range 10.8.0.0/25: want a part of a subnet"},
		"a range twice": {func(n *model.Network) {
			n.Overlay.Peers[1].Ranges[0] = netip.MustParsePrefix("10.9.0.64/26")
		},
			"range 10.9.0.0/25 overlaps a range of peer 192.0.2.2"},
		"an endpoint elsewhere": {func(n *model.Network) {
			n.Overlay.Peers[0].Endpoints[0].Addresses[0] = addr("10.8.0.2")
		},
			"endpoint 10.8.0.2 is in no subnet"},
		"an endpoint twice": {func(n *model.Network) { n.Overlay.Peers[1].Endpoints = n.Overlay.Peers[0].Endpoints },
			"endpoint 10.9.0.2 is listed twice"},
		"an endpoint of none": {func(n *model.Network) { n.Overlay.Peers[1].Endpoints = []model.PeerEndpoint{{}} },
			"an endpoint has no address"},
		"a multicast MAC": {func(n *model.Network) { n.Overlay.Peers[0].Endpoints[0].MAC = "01:00:5e:00:00:01" },
			`mac "01:00:5e:00:00:01"`},
	} {
		t.Run(name, func(t *testing.T) {
			n := overlay()
			c.change(&n)
			err := model.State{Networks: []model.Network{n}}.Validate()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("the error is %v; want %q", err, c.want)
			}
		})
	}
}

// TestCloneCopiesOverlay changes fields of the clone.
func TestCloneCopiesOverlay(t *testing.T) {
	s := model.State{Networks: []model.Network{overlay()}}
	c := s.Clone()
	c.Networks[0].Overlay.Peers[0].Endpoints[0].Addresses[0] = addr("10.9.0.99")
	c.Networks[0].Overlay.Peers[0].Ranges[0] = netip.Prefix{}
	if !s.Networks[0].Equal(overlay()) {
		t.Errorf("the original changes: %+v", s.Networks[0].Overlay)
	}
}
