// Package nft balances virtual services with nftables.
//
// Theory of operation. The first packet of a flow to a frontend is looked up in
// one map of all services and goes to the chain of its service. The chain chooses
// a bucket and looks up the bucket's real server in the service's own map. The
// packet's destination is rewritten to that real server. conntrack rewrites the
// rest of the flow in the same way, and the answers in reverse. So the cost of a
// service does not depend on the number of services. For all packets after the
// first, Fairlead's rules make one comparison.
//
//	client ── prerouting ── services: VIP . tcp . 80 ── service-web: jhash mod 251 ── reals-web ── DNAT
//	host process ── output ── the same
//
// The buckets are a Maglev table. If a real server is added or removed, only the
// elements of buckets with a new owner change. An element costs the kernel about
// a hundred bytes and a microsecond, so there are fewer buckets than in
// Fairlead's other tables: at least 25 for each real server. Removing a real server
// from the service moves three to four percent of the other servers' new flows,
// instead of less than one percent. Flows that conntrack knows are never moved. A
// real server that is down or draining is expected to come back. Meanwhile only
// its own buckets change: they map to the real servers that a table without it
// would choose. While all real servers are available, weights are met to within
// one bucket. rr and wrr count through a list. sh hashes the client's address only.
//
// A real server that drains, or has the weight 0, has no bucket, and so gets no
// new flows. A real server that is down gets no packets: the engine deletes its
// flows from conntrack and resets the clients of its TCP connections. If a client
// does not receive the reset, its next packet is handled as the first of a flow.
// Hashing schedulers map it to another server, which resets it, or, on a host that
// has taken over from another host, to the server that knows the connection. With
// rr and wrr this host resets it. If no real server is left, clients are refused.
//
// Persistence is a map of clients' addresses to real servers, whose elements
// expire. The chain looks there first. The map is written from the packet itself,
// after the destination is rewritten, by every packet of a flow that has had no
// answer yet:
//
//	prerouting, output ── services ── service-web ── clients-web, or else a bucket ── DNAT
//	translated, translated-local ── opened: VIP . tcp . 80 . real server ── keep-web ── into clients-web
//
// A real server that gets no new flows is in no element of the map that jumps to
// keep-web, and its clients are forgotten. A client keeps its real server for all
// ports of a service. A service remembers 65,535 clients; a new client has to
// wait until others expire. Repair of a damaged service forgets all of its clients.
//
// Real servers in Fairlead's sandboxes see the client's address, except for
// neighbours whose answers would bypass the host. Other real servers see the
// host's address, unless the service declares them as routed.
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
func (Plane) Validate(v model.VirtualService, _ balance.Sandboxes, _ plan.Facts) error {
	if v.Scheduler.Traits().CountsFlows {
		computed := model.Schedulers(func(t model.SchedulerTraits) bool { return !t.CountsFlows })
		return fmt.Errorf("scheduler %s: nftables counts no connections: choose %s, or another plane", v.Scheduler,
			model.OneOf(computed))
	}
	if f := balance.Forward(v); f != model.ForwardNAT {
		return fmt.Errorf("forward %s: nftables forwards with nat only: choose nat, or another plane", f)
	}
	if v.Check.Passive {
		return errors.New("nftables does not report connections that fail: leave passive checks out, or use plane ebpf")
	}
	if n := len(v.Frontends()) * len(v.Reals); n > maxAnswers {
		return fmt.Errorf("it has %d combinations of address, port and real server: want at most %d: give it fewer ports, or choose another plane", n, maxAnswers)
	}
	if s := (plan.NFTService{Balanced: plan.Balanced{Service: v.Name}}); len(s.Chain()) > plan.MaxNFTName {
		return errors.New("its name is too long for a chain of nftables: choose a shorter one, or letters and digits")
	}
	return errors.Join(balance.Families(v), ports(v), persistent(v))
}

// persistent returns an error for persistence over IPv6 to several ports.
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
		return fmt.Errorf("persistence: real servers of IPv6 have the ports %v: current versions of nft(8) fail at a map with an IPv6 address and a port: give all the same port, or choose another plane", slices.Sorted(maps.Keys(asked)))
	}
	return nil
}

// ports returns an error if the service has several ports and only some of the
// real servers keep the port that the client dialled.
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
		return fmt.Errorf("real servers %s keep the port that the client dialled and the others do not: a map of nftables cannot have both: give every real server a port, or none, or make two services", strings.Join(kept, ", "))
	}
	return nil
}

// onlyPort returns the first port of a service, and whether it is the only one.
func onlyPort(v model.VirtualService) (uint16, bool) {
	return v.Ports[0].First, len(v.Ports) == 1 && v.Ports[0].Len() == 1
}

// Shared implements balance.Plane.
func (Plane) Shared([]plan.Attachment) plan.Plan {
	// The table of publishes accepts translated flows and masquerades neighbours.
	return plan.Plan{plan.Table{}, plan.ServiceTable{}}
}

// Service implements balance.Plane.
func (Plane) Service(v model.VirtualService, in balance.Sandboxes) plan.Plan {
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
	return append(append(all, returns(v, in)...), service(v, in))
}

// returns plans to masquerade the clients whose answers would bypass the host.
func returns(v model.VirtualService, in balance.Sandboxes) plan.Plan {
	var all plan.Plan
	seen := map[plan.Bypass]bool{}
	for i, r := range v.Reals {
		at, ours := in.Of(i)
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
func service(v model.VirtualService, in balance.Sandboxes) plan.NFTService {
	if port, one := onlyPort(v); one {
		v = v.Clone()
		for i := range v.Reals {
			v.Reals[i].Port = v.Reals[i].At(port).Port()
		}
	}
	size := balance.Sizes{Buckets: Buckets(len(v.Reals)), Turns: maxTurns}
	s := plan.NFTService{Balanced: balance.Pack(v, in, size)}
	if s.Hashes() {
		s.Ring = steady(s.Balanced, v.Reals)
	}
	return s
}

// steady returns the Maglev table of a service. Compared with the table in which all
// real servers get new flows, it changes the owner only of those buckets whose owner
// gets no new flows now.
func steady(b plan.Balanced, reals []model.RealServer) []uint16 {
	reals = slices.DeleteFunc(slices.Clone(reals), func(r model.RealServer) bool { return r.Weight == 0 })
	slices.SortFunc(reals, func(a, b model.RealServer) int { return a.At(0).Compare(b.At(0)) })
	index := map[netip.AddrPort]uint16{}
	for i, o := range b.Backends {
		if !o.Draining && o.Weight > 0 {
			index[o.At] = uint16(i)
		}
	}
	if len(b.Ring) == 0 || len(index) == len(reals) {
		return b.Ring
	}
	all := make([]maglev.Backend, len(reals))
	for i, r := range reals {
		all[i] = maglev.Backend{Name: r.At(0).String(), Weight: uint32(r.Weight)}
	}
	owners := maglev.Table(all, len(b.Ring))
	for i, owner := range owners {
		mine, gets := index[reals[owner].At(0)]
		if !gets {
			mine = b.Ring[i]
		}
		owners[i] = mine
	}
	return owners
}

// sizes are primes, each about twice the one before.
var sizes = []int{251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521, 131071}

// Buckets returns the number of buckets of a service with the given number of real
// servers.
func Buckets(reals int) int {
	for _, m := range sizes {
		if m >= 25*reals {
			return m
		}
	}
	return sizes[len(sizes)-1]
}

// maxTurns limits the list that wrr counts through.
const maxTurns = 4096
