package overlay_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/model"
	"fairlead/test/fabric"
	"fairlead/test/place"
)

// families distinguishes an overlay over IPv4 from one over IPv6.
var families = map[string]bool{"over IPv4": true, "over IPv6": false}

func TestSandboxesOfTwoHostsReachEachOther(t *testing.T) {
	for name, v4 := range families {
		t.Run(name, func(t *testing.T) {
			f := fabric.New(t, fabric.Options{Hosts: 2})
			before := []string{place.Snapshot(t, f.Hosts[0].Do), place.Snapshot(t, f.Hosts[1].Do)}
			n := network(f, v4)
			addrs := everywhere(t, f, n)
			reach(t, f, addrs)
			know(&n, addrs)
			if again := everywhere(t, f, n); fmt.Sprint(again) != fmt.Sprint(addrs) {
				t.Errorf("addresses change: %v, then %v", addrs, again)
			}
			reach(t, f, addrs)
			undrifted(t, f)
			for i, h := range f.Hosts {
				unchanged(t, h, before[i])
			}
		})
	}
}

func TestThreeHosts(t *testing.T) {
	f := fabric.New(t, fabric.Options{Hosts: 3})
	n := network(f, true)
	addrs := everywhere(t, f, n)
	reach(t, f, addrs)
	know(&n, addrs)
	everywhere(t, f, n)
	reach(t, f, addrs)
	undrifted(t, f)
}

// TestKnownSandboxesNeedNoResolution counts the ARP requests and neighbour solicitations that
// arrive through the tunnel.
func TestKnownSandboxesNeedNoResolution(t *testing.T) {
	for _, known := range []bool{false, true} {
		t.Run(fmt.Sprintf("known %v", known), func(t *testing.T) {
			f := fabric.New(t, fabric.Options{Hosts: 3})
			n := network(f, true)
			addrs := everywhere(t, f, n)
			if known {
				know(&n, addrs)
				everywhere(t, f, n)
			}
			for i, h := range f.Hosts {
				// After some time without traffic, the kernel verifies a neighbour with a new
				// request.
				for _, in := range []place.Place{h.Do, h.In(box(i))} {
					sh(t, in,
						"for f in /proc/sys/net/ipv[46]/neigh/*/base_reachable_time_ms; do echo 3600000 > $f; done")
				}
				sh(t, h.Do,
					"nft 'add table netdev probe; add chain netdev probe in { type filter hook ingress device fx-net priority 0; };"+
						" add rule netdev probe in ether type arp counter; add rule netdev probe in icmpv6 type { nd-neighbor-solicit } ip6 saddr != :: counter'")
			}
			reach(t, f, addrs)
			asked := 0
			for i, h := range f.Hosts {
				for line := range strings.SplitSeq(sh(t, h.Do, "nft list table netdev probe"), "\n") {
					if strings.Contains(line, "counter packets") && !strings.Contains(line, "counter packets 0") {
						t.Logf("host %d: %s", i+1, line)
						asked++
					}
				}
			}
			if known && asked > 0 || !known && asked == 0 {
				t.Errorf("known %v: %d counters have counted requests", known, asked)
			}
		})
	}
}

func TestPeersAreAddedAndRemoved(t *testing.T) {
	f := fabric.New(t, fabric.Options{Hosts: 3})
	n := network(f, true)
	addrs := everywhere(t, f, n)
	know(&n, addrs)
	everywhere(t, f, n)
	reach(t, f, addrs)
	without := n
	without.Overlay.Peers = without.Overlay.Peers[:2]
	again := silence(t, f.Hosts[2])
	for i, h := range f.Hosts[:2] {
		set(t, h, state(h, without, box(i)))
		gone := f.Hosts[2].Address(0, true).String()
		if left := sh(t, h.Do, "bridge fdb show dev fx-net; ip neigh show dev fl-net"); strings.Contains(left, gone) ||
			strings.Contains(left, addrs[2][0].String()+" ") {
			t.Errorf("host %d still has entries of the removed host %s:\n%s", i+1, gone, left)
		}
	}
	serve(t, f.Hosts[1].In(box(1)), box(1))
	hears(t, f.Hosts[0].In(box(0)), addrs[1][0], box(1))
	again()
	everywhere(t, f, n)
	reach(t, f, addrs)
	undrifted(t, f)
}

// silence drops all packets that the host sends, so that other hosts cannot learn a removed host
// again. It returns a function that stops this.
func silence(t *testing.T, h *fabric.Host) (again func()) {
	t.Helper()
	sh(t, h.Do,
		"nft 'add table inet silence; add chain inet silence out { type filter hook output priority 0; policy drop; }'")
	return func() { sh(t, h.Do, "nft delete table inet silence") }
}

// TestLearnedEntriesAreDeletedWithHost tests sandboxes that no configuration lists.
func TestLearnedEntriesAreDeletedWithHost(t *testing.T) {
	f := fabric.New(t, fabric.Options{Hosts: 3})
	n := network(f, true)
	addrs := everywhere(t, f, n)
	reach(t, f, addrs)
	h, gone := f.Hosts[0], f.Hosts[2].Address(0, true).String()
	if !strings.Contains(sh(t, h.Do, "bridge fdb show dev fx-net | grep -v permanent"), gone) {
		t.Fatal("no entry was learned from host 3")
	}
	n.Overlay.Peers = n.Overlay.Peers[:2]
	silence(t, f.Hosts[2])
	set(t, h, state(h, n, box(0)))
	if left := sh(t, h.Do, "bridge fdb"); strings.Contains(left, gone) {
		t.Errorf("learned entries of %s are left:\n%s", gone, left)
	}
}

// TestTwoUnderlays configures each host with an address at both switches. Both switches must carry
// the traffic to its sandboxes.
func TestTwoUnderlays(t *testing.T) {
	for name, v4 := range families {
		t.Run(name, func(t *testing.T) {
			f := fabric.New(t, fabric.Options{Hosts: 2, Switches: 2})
			n := network(f, v4)
			n.Overlay.Underlays = []string{fabric.Underlay(0), fabric.Underlay(1)}
			for i, h := range f.Hosts {
				n.Overlay.Peers[i].Further = []netip.Addr{h.Address(1, v4)}
			}
			var addrs [2][][]netip.Addr
			for i, h := range f.Hosts {
				for _, e := range set(t, h, state(h, n, box(i), box(i)+"b")).Endpoints {
					addrs[i] = append(addrs[i], e.Addresses)
				}
			}
			for i := range n.Overlay.Peers {
				for _, a := range addrs[i] {
					n.Overlay.Peers[i].Endpoints = append(n.Overlay.Peers[i].Endpoints,
						model.PeerEndpoint{Addresses: a})
				}
			}
			for i, h := range f.Hosts {
				set(t, h, state(h, n, box(i), box(i)+"b"))
				serve(t, h.In(box(i)), box(i))
				serve(t, h.In(box(i)+"b"), box(i)+"b")
			}
			for i, name := range []string{"box2", "box2b"} {
				before := carried(t, f, i)
				transfer(t, f.Hosts[0].In("box1"), addrs[1][i][0], 1<<20)
				if got := carried(t, f, i) - before; got < 1<<20 {
					t.Errorf("switch %d carried %d bytes to %s; want all", i, got, name)
				}
				hears(t, f.Hosts[0].In("box1b"), addrs[1][i][1], name)
			}
			undrifted(t, f)
		})
	}
}

// carried returns the number of bytes that a switch has sent to host 2.
func carried(t testing.TB, f *fabric.Fabric, sw int) int {
	t.Helper()
	var bytes int
	if _, err := fmt.Sscan(sh(t, f.Switches[sw].Do, "ip -s -j link show "+fabric.Port(2)+
		` | sed 's/.*"tx":{"bytes":\([0-9]*\).*/\1/'`), &bytes); err != nil {
		t.Fatal(err)
	}
	return bytes
}

// TestMulticastGroup configures no peers.
func TestMulticastGroup(t *testing.T) {
	for name, group := range map[string]string{"IPv4": "239.0.0.99", "IPv6": "ff05::99"} {
		t.Run(name, func(t *testing.T) {
			f := fabric.New(t, fabric.Options{Hosts: 3})
			n := network(f, true)
			var addrs [][]netip.Addr
			for i, h := range f.Hosts {
				own := n
				own.Subnets = []model.Subnet{{Prefix: subnets[0].Prefix, Range: n.Overlay.Peers[i].Ranges[0]},
					{Prefix: subnets[1].Prefix, Range: n.Overlay.Peers[i].Ranges[1]}}
				own.Overlay = model.Overlay{VNI: 42, Group: netip.MustParseAddr(group),
					Underlays: []string{fabric.Underlay(0)}}
				addrs = append(addrs, set(t, h, state(h, own, box(i))).Endpoints[0].Addresses)
			}
			reach(t, f, addrs)
			undrifted(t, f)
		})
	}
}
