package stats

import (
	"net/netip"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/kernel/counter"
	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/proxy"
)

// AddFlows adds to the number of all flows.
func AddFlows(p *api.PublishStats, n uint64) { p.Flows = plus(p.Flows, n) }

// AddLive adds to the number of open flows.
func AddLive(p *api.PublishStats, n uint64) { p.Live = plus(p.Live, n) }

func plus(have *uint64, n uint64) *uint64 {
	if have != nil {
		n += *have
	}
	return &n
}

// Sum returns the sum of a count, which may be nil, and another one.
func Sum(have *counter.InOut, n counter.InOut) *counter.InOut {
	if have != nil {
		n = n.Add(*have)
	}
	return &n
}

// Index finds the publish of a host address and port: single ports with a map,
// ranges with a search.
type Index struct {
	single map[protoPort][]*api.PublishStats
	ranges []*api.PublishStats
	// Tracked has the publish modes whose flows are entries of conntrack.
	Tracked map[model.Via]bool
}

type protoPort struct {
	proto model.Proto
	port  uint16
}

// NewIndex returns the index of the publishes. What Find returns is an element of all.
func NewIndex(all []api.PublishStats) Index {
	x := Index{single: make(map[protoPort][]*api.PublishStats, len(all)), Tracked: map[model.Via]bool{}}
	for _, m := range paths.Modes() {
		x.Tracked[m.Name()] = m.Traits().Tracked
	}
	for i := range all {
		p := &all[i]
		if p.HostPorts.Len() == 1 {
			at := protoPort{p.Proto, p.HostPorts.First}
			x.single[at] = append(x.single[at], p)
		} else {
			x.ranges = append(x.ranges, p)
		}
	}
	return x
}

// All returns the publishes in no order.
func (x Index) All() []*api.PublishStats {
	all := append([]*api.PublishStats(nil), x.ranges...)
	for _, at := range x.single {
		all = append(all, at...)
	}
	return all
}

// HasTracked reports whether there is a publish whose flows are in conntrack.
func (x Index) HasTracked() bool {
	return slices.ContainsFunc(x.All(), func(p *api.PublishStats) bool { return x.Tracked[p.Via] })
}

// Find returns the publish that answers at the host address, or nil. An invalid
// address stands for all addresses of both families.
func (x Index) Find(proto model.Proto, host netip.Addr, port uint16) *api.PublishStats {
	for _, p := range x.single[protoPort{proto, port}] {
		if answersAt(p.Publish, host) {
			return p
		}
	}
	for _, p := range x.ranges {
		if p.Proto == proto && p.HostPorts.First <= port && port <= p.HostPorts.Last && answersAt(p.Publish, host) {
			return p
		}
	}
	return nil
}

func answersAt(p model.Publish, host netip.Addr) bool {
	if !host.IsValid() {
		return p.AnyAddr()
	}
	return p.Accepts(host)
}

// AddProxied adds what the proxy's listeners have carried.
func (x Index) AddProxied(all []proxy.ListenerStats) {
	for _, l := range all {
		p := x.Find(l.Proto, l.Listener.Host, l.Ports.First)
		if p == nil {
			continue
		}
		AddFlows(p, l.Accepted+l.Opened)
		AddLive(p, l.Connections+l.Flows)
		if x.Tracked[p.Via] {
			continue // the bytes of tracked flows are not counted
		}
		p.Bytes = Sum(p.Bytes, counter.InOut{In: l.BytesIn, Out: l.BytesOut})
		if l.Proto == model.UDP {
			p.Packets = Sum(p.Packets, counter.InOut{In: l.DatagramsIn, Out: l.DatagramsOut})
		}
	}
}

// AddMapped adds what the mappings of the eBPF data path have carried.
func (x Index) AddMapped(all []counter.Publish) {
	for _, c := range all {
		p := x.Find(c.Proto, c.Host, c.Ports.First)
		if p == nil {
			continue
		}
		AddFlows(p, c.Flows)
		AddLive(p, c.Live)
		p.Bytes, p.Packets, p.Drops = Sum(p.Bytes, c.Bytes), Sum(p.Packets, c.Packets), Sum(p.Drops, c.Drops)
	}
}
