package ipam_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/ipam"
	"fairlead/internal/model"
)

// state returns a state with one network with the given subnets, and endpoints.
// An endpoint written as "name=address" requests that address.
func state(prefixes []string, endpoints ...string) model.State {
	s := model.State{Networks: []model.Network{{Name: "net", Driver: model.DriverBridge}}}
	for _, p := range prefixes {
		s.Networks[0].Subnets = append(s.Networks[0].Subnets, model.Subnet{Prefix: netip.MustParsePrefix(p)})
	}
	for _, e := range endpoints {
		name, requested, _ := strings.Cut(e, "=")
		ep := model.Endpoint{Name: name, Network: "net", Sandbox: "/run/netns/" + name}
		if requested != "" {
			ep.Addresses = []netip.Addr{netip.MustParseAddr(requested)}
		}
		s.Endpoints = append(s.Endpoints, ep)
	}
	return s
}

// withRange restricts leases to a range of the first subnet. The host's address
// is outside the range.
func withRange(s model.State, pool string) model.State {
	s.Networks[0].Subnets[0].Range = netip.MustParsePrefix(pool)
	s.Networks[0].Subnets[0].Address = netip.MustParseAddr("10.0.0.1")
	return s
}

// further adds a range to the first network.
func further(s model.State, pool string) model.State {
	s.Networks[0].FurtherRanges = []netip.Prefix{netip.MustParsePrefix(pool)}
	return s
}

// listed adds a peer with an endpoint to the first network.
func listed(s model.State, addr string) model.State {
	s.Networks[0].Overlay.Peers = []model.Peer{{Endpoints: []model.PeerEndpoint{
		{Addresses: []netip.Addr{netip.MustParseAddr(addr)}}}}}
	return s
}

func leases(pairs ...string) ipam.Leases {
	l := ipam.Leases{}
	for _, p := range pairs {
		name, a, _ := strings.Cut(p, "=")
		l[name] = append(l[name], netip.MustParseAddr(a))
	}
	return l
}

// assign returns a copy of the state with addresses. All endpoints are in the first network.
func assign(s model.State, inUse ipam.Leases, last ipam.Last) (model.State, ipam.Leases, ipam.Last, error) {
	s.Endpoints = slices.Clone(s.Endpoints)
	leases, fresh, err := ipam.Assign(s, slices.Repeat([]*model.Network{&s.Networks[0]}, len(s.Endpoints)), inUse, last)
	return s, leases, fresh, err
}

func TestAssign(t *testing.T) {
	v4, v6 := "10.0.0.0/24", "fd00::/64"
	for _, c := range []struct {
		name  string
		state model.State
		inUse ipam.Leases
		want  []string // in the order of the endpoints
	}{
		{"the lowest address is first", state([]string{v4}, "a", "b"), nil, []string{"10.0.0.2", "10.0.0.3"}},
		{"both families", state([]string{v4, v6}, "a", "b"), nil, []string{"10.0.0.2 fd00::2", "10.0.0.3 fd00::3"}},
		{"a requested address is not leased to another endpoint", state([]string{v4}, "a", "b=10.0.0.2"), nil,
			[]string{"10.0.0.3", "10.0.0.2"}},
		{"a lease is renewed", state([]string{v4}, "a"), leases("a=10.0.0.77"), []string{"10.0.0.77"}},
		{"a lease is not given to an earlier endpoint", state([]string{v4}, "new", "a"), leases("a=10.0.0.2"),
			[]string{"10.0.0.3", "10.0.0.2"}},
		{"a lease that another endpoint requests is lost", state([]string{v4}, "a", "b=10.0.0.77"),
			leases("a=10.0.0.77"), []string{"10.0.0.2", "10.0.0.77"}},
		{"a lease outside the subnet is lost", state([]string{v4}, "a"), leases("a=10.9.0.7"), []string{"10.0.0.2"}},
		{"a lease of the gateway's address is lost", state([]string{v4}, "a"), leases("a=10.0.0.1"),
			[]string{"10.0.0.2"}},
		{"a new family is leased", state([]string{v4, v6}, "a"), leases("a=10.0.0.9"), []string{"10.0.0.9 fd00::2"}},
		{"the lease of a removed endpoint is free", state([]string{v4}, "b"), leases("a=10.0.0.2"),
			[]string{"10.0.0.2"}},
		{"no subnet, no address", state(nil, "a"), nil, []string{""}},
		{"the last address", state([]string{"10.0.0.0/29"}, "a", "b", "c", "d", "e"), nil,
			[]string{"10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"}},
		{"a range within the subnet", withRange(state([]string{v4}, "a", "b"), "10.0.0.128/25"), nil,
			[]string{"10.0.0.128", "10.0.0.129"}},
		{"a lease outside the range is lost", withRange(state([]string{v4}, "a"), "10.0.0.128/25"),
			leases("a=10.0.0.2"), []string{"10.0.0.128"}},
		{"a further range", further(withRange(state([]string{v4}, "a", "b", "c"), "10.0.0.128/31"), "10.0.0.64/26"),
			nil, []string{"10.0.0.128", "10.0.0.129", "10.0.0.64"}},
		{"a lease in a further range is renewed", further(withRange(state([]string{v4}, "a"), "10.0.0.128/31"),
			"10.0.0.64/26"), leases("a=10.0.0.70"), []string{"10.0.0.70"}},
		{"an address that another host has is not leased", listed(state([]string{v4}, "a"), "10.0.0.2"), nil,
			[]string{"10.0.0.3"}},
		{"a prefix written with host bits", state([]string{"10.0.0.9/24"}, "a"), nil, []string{"10.0.0.2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			full, got, _, err := assign(c.state, c.inUse, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, e := range full.Endpoints {
				var words []string
				for _, a := range e.Addresses {
					words = append(words, a.String())
				}
				if strings.Join(words, " ") != c.want[i] || !slices.Equal(got[e.Name], e.Addresses) {
					t.Errorf("endpoint %s has %v, its lease %v, want %s", e.Name, words, got[e.Name], c.want[i])
				}
			}
			again, _, _, err := assign(c.state, got, nil)
			for i := range again.Endpoints {
				if err != nil || !slices.Equal(again.Endpoints[i].Addresses, full.Endpoints[i].Addresses) {
					t.Errorf("a second call moves %s to %v, %v", again.Endpoints[i].Name, again.Endpoints[i].Addresses,
						err)
				}
			}
		})
	}
}

func TestFullSubnet(t *testing.T) {
	_, _, _, err := assign(state([]string{"10.0.0.0/30"}, "a", "b"), nil, nil)
	if err == nil || !strings.Contains(err.Error(), "endpoint b: subnet 10.0.0.0/30 of network net is full") {
		t.Errorf("got %v", err)
	}
}

// TestReservedAddressIsRefused requests the host's address, the gateway's
// address and an address that the host has on the network's parent link.
func TestReservedAddressIsRefused(t *testing.T) {
	for _, requested := range []string{"10.0.0.6", "10.0.0.1", "10.0.0.2"} {
		s := state([]string{"10.0.0.0/29"}, "a="+requested)
		s.Networks[0].ParentAddresses = []netip.Addr{netip.MustParseAddr("10.0.0.2")}
		s.Networks[0].Subnets[0].Address = netip.MustParseAddr("10.0.0.6")
		s.Networks[0].Subnets[0].Gateway = netip.MustParseAddr("10.0.0.1")
		_, _, _, err := assign(s, nil, nil)
		if err == nil || !strings.Contains(err.Error(), "endpoint a: address "+requested+
			" is reserved for the host or the gateway") {
			t.Errorf("%s: got %v", requested, err)
		}
		s.Endpoints[0].Addresses = nil
		full, _, _, err := assign(s, nil, nil)
		if err != nil || full.Endpoints[0].Addresses[0] != netip.MustParseAddr("10.0.0.3") {
			t.Errorf("the first free address is %v, %v", full.Endpoints[0].Addresses, err)
		}
	}
}

// TestFreedAddressIsLeasedLast frees addresses of a cluster's network. The next leases get all others first, and only
// then the freed ones in their order. In a network of this host alone the lowest free address is next.
func TestFreedAddressIsLeasedLast(t *testing.T) {
	for origin, want := range map[model.Origin]string{
		model.FromCluster: "10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6 10.0.0.128 10.0.0.129 10.0.0.2 10.0.0.3",
		"":                "10.0.0.2 10.0.0.2 10.0.0.2 10.0.0.2 10.0.0.2 10.0.0.2 10.0.0.2 10.0.0.2 10.0.0.2",
	} {
		last, leased := ipam.Last{}, ipam.Leases{}
		var got []string
		for i := range 9 {
			s := further(state([]string{"10.0.0.0/29"}, fmt.Sprint("box", i)), "10.0.0.128/31")
			s.Networks[0].Origin = origin
			s.Networks[0].Subnets[0] = model.Subnet{Prefix: netip.MustParsePrefix("10.0.0.0/24"),
				Range: netip.MustParsePrefix("10.0.0.0/29"), Address: netip.MustParseAddr("10.0.0.1")}
			s.Endpoints = append(s.Endpoints, model.Endpoint{Name: "other", Network: "net", Sandbox: "/run/netns/other",
				Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7")}})
			full, next, fresh, err := assign(s, leased, last)
			if err != nil {
				t.Fatal(err)
			}
			maps.Copy(last, fresh)
			got = append(got, full.Endpoints[0].Addresses[0].String())
			leased = next
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("origin %q: got %s, want %s", origin, text, want)
		}
	}
}

// TestFirstLeaseAfterRestart leases an address of a cluster's network when the last one is not known any more.
func TestFirstLeaseAfterRestart(t *testing.T) {
	s := state([]string{"10.0.0.0/24"}, "a", "new")
	s.Networks[0].Origin = model.FromCluster
	full, _, _, err := assign(s, leases("a=10.0.0.9"), ipam.Last{})
	if err != nil || full.Endpoints[1].Addresses[0] != netip.MustParseAddr("10.0.0.10") {
		t.Errorf("the next address is %v, %v", full.Endpoints[1].Addresses, err)
	}
}
