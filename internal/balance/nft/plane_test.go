package nft_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/balance/nft"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/planetest"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// suite is what the data plane plans and refuses. The sandboxes are on a bridge.
var suite = planetest.Suite{
	Plane:     nft.Plane{},
	Base:      func() model.VirtualService { return service(func(*model.VirtualService) {}) },
	Services:  scenarios,
	Attach:    planetest.OnBridge,
	Skeletons: []string{plan.TableText, "(the skeleton)\n", plan.ServiceTableText, "(the skeleton of services)\n"},
	Changes: []planetest.Change{
		{Name: "change to both kinds", From: "sandboxes", To: "both kinds"},
		{Name: "change to draining and down", From: "sandboxes", To: "draining and down"},
		{Name: "change to two ports unchanged", From: "sandboxes", To: "two ports unchanged"},
		{Name: "change to persistent", From: "sandboxes", To: "persistent rr"},
		{Name: "change of persistent", From: "persistent rr", To: "persistent and down"},
		{Name: "removal of persistent", From: "persistent rr"},
		{Name: "removal", From: "sandboxes"},
	},
	Refusals: []planetest.Refusal{
		{Want: "scheduler lc", Change: func(v *model.VirtualService) { v.Scheduler = model.LeastConnection }},
		{Want: "forward direct", Change: func(v *model.VirtualService) { v.Forward = model.ForwardDirect }},
		{Want: "forward tunnel", Change: func(v *model.VirtualService) { v.Forward = model.ForwardTunnel }},
		{Want: "address family", Change: func(v *model.VirtualService) {
			v.Addresses = []netip.Addr{addr("2001:db8::1")}
		}},
		{Want: "have the ports [80 81]", Change: func(v *model.VirtualService) {
			v.Persistence, v.Addresses = time.Minute, []netip.Addr{addr("2001:db8::80")}
			v.Reals = []model.RealServer{{Address: addr("fd00::1"), Port: 80, Weight: 1},
				{Address: addr("fd00::2"), Port: 81, Weight: 1}}
		}},
		{Want: "passive", Change: func(v *model.VirtualService) { v.Check.Passive = true }},
		{Want: "172.30.0.12 keep", Change: func(v *model.VirtualService) {
			v.Ports[0].Last, v.Reals[0].Port = 8081, 0
		}},
		{Want: "too long", Change: func(v *model.VirtualService) { v.Name = strings.Repeat("ö", 64) }},
		{Want: "fewer ports", Change: func(v *model.VirtualService) {
			v.Ports[0].Last = 9000
			for i := range 100 {
				v.Reals = append(v.Reals, model.RealServer{Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}),
					Port: 80})
			}
		}},
	},
}

func TestConform(t *testing.T) { planetest.Conform(t, suite) }

func service(change func(*model.VirtualService)) model.VirtualService {
	v := model.VirtualService{Name: "web", Addresses: []netip.Addr{addr("192.0.2.80")},
		Ports: []model.PortRange{model.Port(8080)}, Proto: model.TCP,
		Scheduler: model.WeightedRoundRobin, Reals: []model.RealServer{
			{Address: addr("172.30.0.12"), Port: 80, Weight: 2, Endpoint: "b"},
			{Address: addr("172.30.0.11"), Port: 80, Weight: 1, Endpoint: "a"}}}
	change(&v)
	return v
}

var far = model.RealServer{Address: addr("203.0.113.11"), Weight: 1}

// scenarios are changes of a service, by what the service then has.
var scenarios = map[string]func(*model.VirtualService){
	"sandboxes":  func(*model.VirtualService) {},
	"maglev":     func(v *model.VirtualService) { v.Scheduler = "" },
	"both kinds": func(v *model.VirtualService) { v.Reals = append(v.Reals, far) },
	"routed": func(v *model.VirtualService) {
		v.Reals = []model.RealServer{far}
		v.SourceNAT = model.SourceNATRouted
	},
	"masqueraded": func(v *model.VirtualService) { v.SourceNAT = model.SourceNATMasqueraded },
	"persistent rr": func(v *model.VirtualService) {
		v.Scheduler, v.Persistence = model.RoundRobin, 5*time.Minute
	},
	"persistent over IPv6": func(v *model.VirtualService) {
		v.Persistence, v.Addresses = 5*time.Minute, []netip.Addr{addr("2001:db8::80")}
		v.Reals = []model.RealServer{{Address: addr("fd00:30::11"), Port: 80, Weight: 1, Endpoint: "a"}}
	},
	"persistent and down": func(v *model.VirtualService) {
		v.Scheduler, v.Persistence = model.RoundRobin, 5*time.Minute
		v.Reals[0].State = model.RealDown
	},
	"draining and down": func(v *model.VirtualService) {
		v.Reals[0].State, v.Reals[1].State = model.RealDraining, model.RealDown
	},
	"on an interface": func(v *model.VirtualService) { v.Interface = "eth0" },
	"no real server":  func(v *model.VirtualService) { v.Reals = nil },
	"two ports unchanged": func(v *model.VirtualService) {
		v.Ports[0].Last, v.Reals[0].Port, v.Reals[1].Port = 8081, 0, 0
	},
	"IPv6 over udp": func(v *model.VirtualService) {
		v.Proto, v.Addresses = model.UDP, []netip.Addr{addr("2001:db8::80")}
		v.Reals = []model.RealServer{{Address: addr("fd00:30::11"), Port: 80, Weight: 1, Endpoint: "a"}}
	},
}

// pool returns a service with n real servers.
func pool(n int) model.VirtualService {
	return service(func(v *model.VirtualService) {
		v.Scheduler, v.Reals = model.MaglevHashing, nil
		for i := range n {
			v.Reals = append(v.Reals, model.RealServer{Address: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}),
				Port: 80, Weight: 1})
		}
	})
}

// owners returns the real server of each bucket.
func owners(v model.VirtualService) []netip.AddrPort {
	p := nft.Plane{}.Service(v, nil)
	var all []netip.AddrPort
	for _, e := range p[len(p)-1].(plan.NFTService).Buckets() {
		all = append(all, e.Real)
	}
	return all
}

// TestRemovalMovesFew checks what happens to the buckets if one of many real servers
// is removed from the service, is down or drains. Its own buckets are divided among
// the others. Few of the others' buckets change their owner if it is removed, and none
// if it is down or drains.
func TestRemovalMovesFew(t *testing.T) {
	for state, most := range map[model.RealState]float64{model.RealDown: 0, model.RealDraining: 0, "taken out": 0.05} {
		for _, n := range []int{3, 10, 100} {
			moves(t, state, n, most)
		}
	}
}

func moves(t *testing.T, state model.RealState, n int, most float64) {
	t.Helper()
	v := pool(n)
	before := owners(v)
	var moved, others int
	for i := range min(n, 20) {
		less := v.Clone()
		if less.Reals[i].State = state; state == "taken out" {
			less.Reals = slices.Delete(less.Reals, i, i+1)
		}
		after := owners(less)
		if len(after) != len(before) {
			continue // the next smaller table
		}
		heirs := map[netip.AddrPort]bool{}
		for b := range before {
			if before[b].Addr() == v.Reals[i].Address {
				heirs[after[b]] = true
				continue
			}
			if others++; before[b] != after[b] {
				moved++
			}
		}
		if len(heirs) < min(n-1, 5) || heirs[netip.AddrPortFrom(v.Reals[i].Address, 80)] {
			t.Errorf("the buckets of one of %d real servers now belong to %v", n, heirs)
		}
	}
	share := float64(moved) / float64(others)
	t.Logf("of %d buckets of %d servers, one that is %s moves %.2f%% of the others'", len(before), n, state, 100*share)
	if share > most {
		t.Errorf("%.1f%% of the others' buckets have moved", 100*share)
	}
}

// TestWeightsAreMet checks that wrr gives each real server its share of the turns to
// within one turn.
func TestWeightsAreMet(t *testing.T) {
	for _, weights := range [][]int{{2, 13, 111, 10}, {100, 200, 300}, {65535, 1, 0}, {65535, 65521, 65519}} {
		v := pool(len(weights))
		sum := 0
		for i, w := range weights {
			v.Reals[i].Weight = w
			sum += w
		}
		v.Scheduler = model.WeightedRoundRobin
		turns := owners(v)
		for i, w := range weights {
			n := len(slices.DeleteFunc(slices.Clone(turns),
				func(a netip.AddrPort) bool { return a.Addr() != v.Reals[i].Address }))
			if want := float64(w) * float64(len(turns)) / float64(sum); float64(n) < want-1 || float64(n) > want+1 {
				t.Errorf("%v: %d of %d turns for weight %d", weights, n, len(turns), w)
			}
		}
		if s := fmt.Sprint(len(turns)); len(turns) > 4096+len(weights) {
			t.Errorf("%v: %s turns", weights, s)
		}
	}
}
