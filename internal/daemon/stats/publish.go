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

func addFlows(p *api.PublishStats, n uint64) { p.Flows = plus(p.Flows, n) }

// addLive adds to the number of open flows.
func addLive(p *api.PublishStats, n uint64) { p.Live = plus(p.Live, n) }

func plus(have *uint64, n uint64) *uint64 {
	if have != nil {
		n += *have
	}
	return &n
}

// sum returns the sum of a count, which may be nil, and another one.
func sum(have *counter.InOut, n counter.InOut) *counter.InOut {
	if have != nil {
		n = n.Add(*have)
	}
	return &n
}

// index finds the publish of a host address and port: single ports with a map,
// ranges with a search.
type index struct {
	single map[protoPort][]*api.PublishStats
	ranges []*api.PublishStats
	// tracked has the publish modes whose flows are entries of conntrack.
	tracked map[model.Via]bool
}

type protoPort struct {
	proto model.Proto
	port  uint16
}

// newIndex returns the index of the publishes. What find returns is an element of all.
func newIndex(all []api.PublishStats) index {
	x := index{single: make(map[protoPort][]*api.PublishStats, len(all)), tracked: map[model.Via]bool{}}
	for _, m := range paths.Modes() {
		x.tracked[m.Name()] = m.Carrier() == model.CarrierStack
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

// all returns the publishes in no order.
func (x index) all() []*api.PublishStats {
	all := append([]*api.PublishStats(nil), x.ranges...)
	for _, at := range x.single {
		all = append(all, at...)
	}
	return all
}

// hasTracked reports whether there is a publish whose flows are in conntrack.
func (x index) hasTracked() bool {
	return slices.ContainsFunc(x.all(), func(p *api.PublishStats) bool { return x.tracked[p.Via] })
}

// find returns the publish that answers at the host address, or nil. An invalid
// address stands for all addresses of both families.
func (x index) find(proto model.Proto, host netip.Addr, port uint16) *api.PublishStats {
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

// addProxied adds what the proxy's listeners have carried.
func (x index) addProxied(all []proxy.ListenerStats) {
	for _, l := range all {
		p := x.find(l.Proto, l.Listener.Host, l.Ports.First)
		if p == nil {
			continue
		}
		addFlows(p, l.Accepted+l.Opened)
		addLive(p, l.Connections+l.Flows)
		if x.tracked[p.Via] {
			continue // the bytes of tracked flows are not counted
		}
		p.Bytes = sum(p.Bytes, counter.InOut{In: l.BytesIn, Out: l.BytesOut})
		if l.Proto == model.UDP {
			p.Packets = sum(p.Packets, counter.InOut{In: l.DatagramsIn, Out: l.DatagramsOut})
		}
	}
}

// addMapped adds what the mappings of the eBPF data path have carried.
func (x index) addMapped(all []counter.Publish) {
	for _, c := range all {
		p := x.find(c.Proto, c.Host, c.Ports.First)
		if p == nil {
			continue
		}
		addFlows(p, c.Flows)
		addLive(p, c.Live)
		p.Bytes, p.Packets, p.Drops = sum(p.Bytes, c.Bytes), sum(p.Packets, c.Packets), sum(p.Drops, c.Drops)
	}
}
