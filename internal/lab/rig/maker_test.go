package rig

import (
	"net/netip"
	"slices"
	"testing"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
	"fairlead/internal/plan"
)

func engine(t *testing.T, name string) *Engine {
	t.Helper()
	p, ok := suite.FindPath(name)
	if !ok || p.Peer.Name != "" {
		t.Fatalf("%s is not a path of the engine", name)
	}
	return NewEngine(p)
}

func TestDial(t *testing.T) {
	for _, c := range []struct {
		path   string
		client result.Client
		want   string
		want6  string
	}{
		{"host", result.Remote, "198.51.100.2:8080", "[2001:db8:1::2]:8080"},
		{"nat", result.Remote, "198.51.100.2:8080", "[2001:db8:1::2]:8080"},
		{"routed", result.Remote, "172.30.0.2:8080", "[2001:db8:30::2]:8080"},
		{"bridge", result.Local, "172.30.0.2:8080", "[2001:db8:30::2]:8080"},
		// The client host has no route to a bridge's subnet.
		{"bridge", result.Remote, "198.51.100.2:8080", "[2001:db8:1::2]:8080"},
		{"macvlan", result.Remote, "198.51.100.20:8080", "[2001:db8:1::14]:8080"},
		{"device", result.Remote, "203.0.113.2:8080", "[2001:db8:2::2]:8080"},
		{"balance:nft", result.Remote, "192.0.2.80:8080", "[2001:db8:80::80]:8080"},
		{"bridge", result.Peer, "172.30.0.2:8080", "[2001:db8:30::2]:8080"},
		// Networks are isolated from each other.
		{"bridge", result.OtherNetwork, "198.51.100.2:8080", "[2001:db8:1::2]:8080"},
		{"routed", result.OtherNetwork, "172.30.0.2:8080", "[2001:db8:30::2]:8080"},
		{"host", result.Outbound, "198.51.100.1:8080", "[2001:db8:1::1]:8080"},
		{"bridge", result.Outbound, "198.51.100.1:8080", "[2001:db8:1::1]:8080"},
		{"device", result.Outbound, "203.0.113.1:8080", "[2001:db8:2::1]:8080"},
	} {
		for family, want := range map[result.Family]string{0: c.want, result.IPv4: c.want, result.IPv6: c.want6} {
			e := engine(t, c.path)
			e.Path.Family = family
			if got := e.Dial(c.client, LoadPort); got != netip.MustParseAddrPort(want) {
				t.Errorf("%s, %s: the client %s dials %s, want %s", c.path, family, c.client, got, want)
			}
		}
	}
}

// TestProof: on each path, the counter that only packets of this path increase proves
// it, and the proof fails without that counter.
func TestProof(t *testing.T) {
	const size = 1000
	all := Counters{links: []uint64{size, size}, wires: []uint64{size, size}, translated: size, proxied: size,
		granted: 1, hasProxy: true}
	idle := all
	idle.proxied = 0
	for _, c := range []struct {
		path    string
		client  result.Client
		after   Counters
		counter string
		ok      bool
	}{
		{"nat", result.Remote, idle, "bytes on link fv-web", true},
		{"nat", result.Remote, all, "bytes on link fv-web", false}, // the proxy has carried the bytes
		{"nat", result.Remote, Counters{links: []uint64{1}}, "bytes on link fv-web", false},
		{"ebpf", result.Remote, idle, "bytes translated by eBPF", true},
		{"ebpf", result.Remote, all, "bytes translated by eBPF", false},
		{"ebpf", result.Remote, Counters{}, "bytes translated by eBPF", false},
		{"ebpf", result.Local, idle, "bytes on link fv-web", true},
		{"balance:ebpf", result.Remote, idle, "bytes translated by eBPF", true},
		{"proxy", result.Remote, all, "bytes through the proxy", true},
		{"proxy", result.Remote, idle, "bytes through the proxy", false},
		{"socket", result.Remote, idle, "listeners on the granted port", true},
		{"socket", result.Remote, Counters{links: []uint64{size}, requested: 1},
			"listeners on the granted port", false},
		{"host", result.Remote, Counters{links: []uint64{size}}, "bytes on link wire0", true},
		{"host", result.Local, Counters{links: []uint64{size}, Flows: 1}, "bytes on link lo", false},
		{"bridge", result.Outbound, Counters{links: []uint64{size, size, size}, Flows: 1}, "flows in conntrack", true},
		{"bridge", result.Outbound, Counters{links: []uint64{size, size, size}}, "flows in conntrack", false},
		{"bridge", result.Outbound, Counters{links: []uint64{size, size, 0}, Flows: 1},
			"bytes on link fv-web and eth0 in the sandbox and wire0", false},
		{"routed", result.Outbound, Counters{links: []uint64{size, size, size}},
			"bytes on link fv-web and eth0 in the sandbox and wire0", true},
		{"macvlan", result.Peer, Counters{links: []uint64{0}}, "bytes on link eth0 in the sandbox", false},
		{"ebpf", result.OtherNetwork, Counters{}, "bytes translated by eBPF", false},
		{"vxlan-2", result.Remote, all, "bytes on the wire with fewer", true},
		{"vxlan-2", result.Remote, Counters{links: all.links, wires: []uint64{size, 0}},
			"bytes on the wire with fewer", false},
	} {
		e := engine(t, c.path)
		r := &Rig{Path: e.Path, Maker: e}
		before := Counters{links: []uint64{0, 0, 0}, wires: []uint64{0, 0}}
		p := r.Prove(Window{Client: c.client, Before: before, After: c.after, Received: size})
		if p.Counter != c.counter || p.OK != c.ok {
			t.Errorf("%s, %s: %+v, want %s, %v", c.path, c.client, p, c.counter, c.ok)
		}
	}
}

// TestProofOfFamily: on a path of IPv6, a proof fails if the client's packets were of
// another version of IP.
func TestProofOfFamily(t *testing.T) {
	const size = 1000
	e := engine(t, "host")
	e.Path.Family = result.IPv6
	r := &Rig{Path: e.Path, Maker: e}
	for got, ok := range map[uint64]bool{size: true, size - 1: false, 0: false} {
		p := r.Prove(Window{Client: result.Remote, Before: Counters{links: []uint64{0}, hasIP: true},
			After: Counters{links: []uint64{size}, ip: got, hasIP: true}, Received: size})
		if p.OK != ok || !ok && p.Counter != "bytes in IPv6 packets of the client" {
			t.Errorf("%d bytes in IPv6 packets: %+v, want %v", got, p, ok)
		}
	}
}

// TestFeatures: a path that a kernel without features of eBPF programs cannot have names one of them, so that the
// kernel is asked about it. A path through the bridge and nftables names none, and the programs are not verified for it.
func TestFeatures(t *testing.T) {
	programs := []plan.Feature{plan.FeatureEBPF, plan.FeatureCgroupHooks, plan.FeatureServices}
	without := plan.Facts{Missing: map[plan.Feature]string{}}
	for _, f := range programs {
		without.Missing[f] = "missing"
	}
	refused := 0
	for _, p := range suite.Paths() {
		asks := slices.ContainsFunc(Features(p), func(f plan.Feature) bool { return slices.Contains(programs, f) })
		if why := Unavailable(p, without); why != "" && p.WithoutFamily() == "" {
			refused++
			if !asks {
				t.Errorf("%s: the kernel is not asked about programs, and without them: %s", p.Name, why)
			}
		}
	}
	if refused == 0 {
		t.Error("no path needs programs")
	}
	if nat := engine(t, "nat").Path; slices.ContainsFunc(Features(nat), func(f plan.Feature) bool {
		return slices.Contains(programs, f)
	}) {
		t.Errorf("nat names %v", Features(nat))
	}
}
