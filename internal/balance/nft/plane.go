// Package nft balances virtual services in nftables.
//
// Theory of operation. The first packet of a flow to a frontend is looked up in
// one map of all services and goes to its service's chain. That chooses a bucket
// and looks up the bucket's real server in a map of the service's own, to which
// the packet's destination is rewritten; conntrack does the same for the rest of
// the flow and the reverse for the answers. So what a service costs does not
// depend on how many there are, and nothing of ours runs for the packets after
// the first but one comparison.
//
//	client ── prerouting ── services: VIP . tcp . 80 ── service-web: jhash mod 251 ── reals-web ── DNAT
//	host process ── output ── the same
//
// The buckets are a Maglev table: where a real server comes or goes, only the
// elements of buckets that have another owner change, and all others lead where
// they did. An element costs the kernel about a hundred bytes and a microsecond,
// so there are fewer buckets than in our other tables: at least 25 for each real
// server. When one is taken out of the service, that moves three to four in a
// hundred of the others' new flows, instead of fewer than one; flows that
// conntrack knows are never moved. One that is down or drains comes back, and
// meanwhile the table stays as it is but for its own buckets: they lead where a
// table without it has them, and no others move. Weights are met to within one
// bucket while nobody is out. rr and wrr count through a list, sh hashes the
// client's address alone.
//
// A real server that drains, or weighs nothing, has no bucket, and so gets no
// new flows. One that is down gets nothing: conntrack forgets its flows and the
// clients of TCP connections are reset (the engine sees to both). Where one has not
// heard of it, its next packet is taken for the first of a flow. Hashes lead it on to another server, which resets it, or, on
// a host that has taken over from another, to the server that knows it; rr and
// wrr reset it here. Where no real server is left, clients are refused.
//
// Persistence is a map of clients' addresses to real servers, whose elements
// expire: the chain looks there first. It is written once the destination is
// rewritten, from the packet itself, by every packet of a flow that nobody has
// answered yet:
//
//	prerouting, output ── services ── service-web ── clients-web, or else a bucket ── DNAT
//	translated, translated-local ── opened: VIP . tcp . 80 . real server ── keep-web ── into clients-web
//
// A real server that gets no new flows is in no element of the map that leads to
// keep-web, and its clients are forgotten. A client keeps its real server for all
// ports of a service. A service remembers 65,535 clients; a new one has to wait
// until others expire. Repair of a damaged service forgets all of its clients.
//
// Real servers of ours see the client, but for neighbours whose answers would
// pass the host by; others see the host, unless they are said to be routed.
//
// Kernel: reject in prerouting (5.9), and what package nat needs. IPv4 is not
// translated to IPv6.
package nft

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/balance"
	"fairlead/internal/balance/maglev"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// maxAnswers bounds the frontends times real servers of one service.
const maxAnswers = 1 << 16

// Plane implements balance.Plane.
type Plane struct{}

// Name implements balance.Plane.
func (Plane) Name() model.Plane { return model.PlaneNFT }

// Needs implements balance.Plane.
func (Plane) Needs(model.VirtualService) []plan.Feature {
	return []plan.Feature{plan.FeatureNAT, plan.FeatureNFTServices}
}

// Validate implements balance.Plane.
func (Plane) Validate(v model.VirtualService, _ plan.Facts) error {
	switch balance.Scheduler(v) {
	case model.MaglevHashing, model.SourceHashing, model.RoundRobin, model.WeightedRoundRobin:
	default:
		return fmt.Errorf("scheduler %s: nftables counts no connections: choose mh, sh, rr or wrr, or another plane", v.Scheduler)
	}
	if f := balance.Forward(v); f != model.ForwardNAT {
		return fmt.Errorf("forward %s: nftables forwards by nat alone: choose that, or another plane", f)
	}
	if v.Check.Passive {
		return errors.New("nftables tells nobody of connections that fail: leave passive checks out, or use plane ebpf")
	}
	if n := len(v.Frontends()) * len(v.Reals); n > maxAnswers {
		return fmt.Errorf("it has %d addresses times ports times real servers: want at most %d: give it fewer ports, or choose another plane", n, maxAnswers)
	}
	if s := (plan.NFTService{Balanced: plan.Balanced{Service: v.Name}}); len(s.Chain()) > plan.MaxNFTName {
		return errors.New("its name is too long for a chain of nftables: choose a shorter one, or letters and digits")
	}
	return errors.Join(balance.Families(v), ports(v), persistent(v))
}

// persistent refuses persistence over IPv6 to several ports.
func persistent(v model.VirtualService) error {
	if v.Persistence == 0 || v.Addresses[0].Is4() {
		return nil
	}
	kept, _ := onlyPort(v)
	asked := map[uint16]bool{}
	for _, r := range v.Reals {
		if r.State == model.RealUp && r.Weight > 0 {
			asked[r.At(kept).Port()] = true
		}
	}
	if len(asked) > 1 {
		return fmt.Errorf("persistence: real servers of IPv6 are asked at ports %v: nft(8) of today fails at a map that holds an address of IPv6 and a port: give all one port, or choose another plane", slices.Sorted(maps.Keys(asked)))
	}
	return nil
}

// ports refuses real servers of which some keep the port that the client has
// dialled and some do not, where there are several to dial.
func ports(v model.VirtualService) error {
	if _, one := onlyPort(v); one || len(v.Reals) == 0 {
		return nil
	}
	var kept []string
	for _, r := range v.Reals {
		if r.Port == 0 {
			kept = append(kept, r.String())
		}
	}
	if len(kept) > 0 && len(kept) < len(v.Reals) {
		return fmt.Errorf("real servers %s keep the port that the client has dialled and the others do not: a map of nftables holds the one or the other: give each its port, or none, or make two services", strings.Join(kept, ", "))
	}
	return nil
}

// onlyPort returns the port of a service that answers on one alone.
func onlyPort(v model.VirtualService) (uint16, bool) {
	return v.Ports[0].First, len(v.Ports) == 1 && v.Ports[0].Len() == 1
}

// Shared implements balance.Plane.
func (Plane) Shared([]plan.Attachment) plan.Plan {
	// The skeleton of publishes lets flows pass that were led, and masquerades
	// neighbours.
	return plan.Plan{plan.Table{}, plan.ServiceTable{}}
}

// Service implements balance.Plane.
func (Plane) Service(v model.VirtualService, find balance.Sandboxes) plan.Plan {
	var all plan.Plan
	seen := map[bool]bool{}
	for _, a := range v.Addresses {
		if !seen[a.Is4()] {
			all = append(all, plan.IPForwarding(a.Is4()))
		}
		seen[a.Is4()] = true
		if v.Interface == "" {
			// Without a route, the host's own processes get no further than that.
			all = append(all, plan.LocalRoute{Addr: a})
		}
	}
	return append(append(all, returns(v, find)...), service(v, find))
}

// returns masquerades the clients whose answers would pass the host by.
func returns(v model.VirtualService, find balance.Sandboxes) plan.Plan {
	var all plan.Plan
	seen := map[plan.Bypass]bool{}
	for _, r := range v.Reals {
		at, ours := find(r.Endpoint)
		if !ours || r.State == model.RealDown {
			continue
		}
		for _, by := range at.Bypass {
			if by.To.Addr().Is4() == r.Address.Is4() && !seen[by] {
				seen[by] = true
				all = append(all, plan.Member{Set: plan.SetHairpin, Src: by.From, Dst: by.To})
			}
		}
	}
	return all
}

// service packs the service with its buckets.
func service(v model.VirtualService, find balance.Sandboxes) plan.NFTService {
	if port, one := onlyPort(v); one {
		v = v.Clone()
		for i := range v.Reals {
			v.Reals[i].Port = v.Reals[i].At(port).Port()
		}
	}
	hashed := v
	if balance.Scheduler(v) == model.SourceHashing {
		hashed.Scheduler = model.MaglevHashing // its buckets are chosen alike
	}
	s := plan.NFTService{Balanced: balance.Pack(hashed, find, Buckets(len(v.Reals)))}
	s.Ring = steady(s.Balanced, v.Reals)
	s.Scheduler = balance.Scheduler(v)
	switch s.Scheduler {
	case model.RoundRobin, model.WeightedRoundRobin:
		s.Ring = plan.PackRing(turns(s.Backends.List(), s.Scheduler == model.WeightedRoundRobin))
	}
	return s
}

// steady returns the Maglev table of a service in which those buckets alone have
// another owner than if all real servers got new flows whose own gets none.
func steady(b plan.Balanced, reals []model.RealServer) plan.Ring {
	reals = slices.DeleteFunc(slices.Clone(reals), func(r model.RealServer) bool { return r.Weight == 0 })
	slices.SortFunc(reals, func(a, b model.RealServer) int { return a.At(0).Compare(b.At(0)) })
	index := map[netip.AddrPort]uint16{}
	for i, o := range b.Backends.List() {
		if !o.Draining && o.Weight > 0 {
			index[o.At] = uint16(i)
		}
	}
	if b.Ring == "" || len(index) == len(reals) {
		return b.Ring
	}
	all := make([]maglev.Backend, len(reals))
	for i, r := range reals {
		all[i] = maglev.Backend{Name: r.At(0).String(), Weight: uint32(r.Weight)}
	}
	owners := maglev.Table(all, b.Ring.Len())
	for i, owner := range owners {
		mine, gets := index[reals[owner].At(0)]
		if !gets {
			mine = uint16(b.Ring.At(i))
		}
		owners[i] = mine
	}
	return plan.PackRing(owners)
}

// sizes are primes, each about twice the one before.
var sizes = []int{251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521, 131071}

// Buckets returns how many buckets a service of so many real servers has.
func Buckets(reals int) int {
	for _, m := range sizes {
		if m >= 25*reals {
			return m
		}
	}
	return sizes[len(sizes)-1]
}

// maxTurns bounds the list that wrr counts through: weights whose greatest
// common divisor would make it longer are rounded.
const maxTurns = 4096

// turns returns whose turn it is, for as long as it takes until all begins anew:
// each once for rr, and as often as it weighs for wrr, spread evenly.
func turns(all []plan.Backend, weighted bool) []uint16 {
	weights := make([]int, len(all))
	for i, b := range all {
		switch {
		case b.Draining || b.Weight == 0:
		case weighted:
			weights[i] = int(b.Weight)
		default:
			weights[i] = 1
		}
	}
	if !weighted {
		return once(weights)
	}
	return spread(reduce(weights))
}

// once lists each index that weighs something.
func once(weights []int) []uint16 {
	var list []uint16
	for i, w := range weights {
		if w > 0 {
			list = append(list, uint16(i))
		}
	}
	return list
}

// reduce divides weights by what they have in common, and further until they
// are no more than maxTurns together.
func reduce(weights []int) []int {
	common, sum := 0, 0
	for _, w := range weights {
		common, sum = gcd(common, w), sum+w
	}
	if common == 0 {
		return weights
	}
	reduced := make([]int, len(weights))
	for i, w := range weights {
		reduced[i] = w / common
		if sum/common > maxTurns && w > 0 {
			reduced[i] = max(1, w*maxTurns/sum)
		}
	}
	return reduced
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// spread lists each index as often as it weighs, as evenly as can be: at each
// turn all gather their weight, and whoever has gathered most pays the sum for
// its turn (the smooth weighted round robin of nginx).
func spread(weights []int) []uint16 {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	gathered := make([]int, len(weights))
	list := make([]uint16, 0, sum)
	for range sum {
		best := -1
		for i, w := range weights {
			if gathered[i] += w; w > 0 && (best < 0 || gathered[i] > gathered[best]) {
				best = i
			}
		}
		gathered[best] -= sum
		list = append(list, uint16(best))
	}
	return list
}
