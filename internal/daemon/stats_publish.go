package daemon

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/kernel/conntrack"
	"fairlead/internal/kernel/counter"
	"fairlead/internal/model"
	"fairlead/internal/paths"
)

// countPublishes reads the counters of all publish modes. A port that the kernel maps
// may also have a listener of the proxy, for clients that the kernel cannot redirect;
// both count for the publish.
func (d *Daemon) countPublishes(ctx context.Context, s *api.Stats, endpoints map[string]model.Endpoint) error {
	x := indexPublishes(s.Publishes)
	return errors.Join(d.countProxied(ctx, s, x), d.countMappings(s, x), d.countMapped(x), d.countTracked(x, endpoints))
}

// countProxied counts the traffic of the proxy's listeners, as payload.
func (d *Daemon) countProxied(ctx context.Context, s *api.Stats, x publishIndex) error {
	total, each, running, err := d.engine.Proxied(ctx)
	if !running {
		return err
	}
	s.Proxy = &total
	for _, l := range each {
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
	return nil
}

// countMappings counts the traffic of the eBPF data path, as whole frames.
func (d *Daemon) countMappings(s *api.Stats, x publishIndex) error {
	each, fill, there, err := d.cfg.Counters.EBPF().MappingTraffic()
	if !there {
		return err
	}
	s.EBPF = &fill
	for _, c := range each {
		p := x.find(c.Proto, c.Host, c.Ports.First)
		if p == nil {
			continue
		}
		addFlows(p, c.Flows)
		addLive(p, c.Live)
		p.Bytes, p.Packets, p.Drops = sum(p.Bytes, c.Bytes), sum(p.Packets, c.Packets), sum(p.Drops, c.Drops)
	}
	return nil
}

// countMapped counts the flows that matched elements of the nft maps.
func (d *Daemon) countMapped(x publishIndex) error {
	if !x.hasTracked() {
		return nil
	}
	each, err := d.cfg.Counters.NFT().MappingTraffic()
	for _, c := range each {
		if p := x.find(c.Proto, c.Host, c.Ports.First); p != nil {
			addFlows(p, c.Flows)
		}
	}
	return err
}

// countTracked counts the open flows of publishes whose flows are in conntrack.
func (d *Daemon) countTracked(x publishIndex, endpoints map[string]model.Endpoint) error {
	if !x.hasTracked() {
		return nil
	}
	owners := map[netip.Addr]string{}
	for name, e := range endpoints {
		for _, a := range e.AllAddresses() {
			owners[a] = name
		}
	}
	for _, p := range x.all() {
		if x.tracked[p.Via] {
			addLive(p, 0)
		}
	}
	return d.cfg.Counters.Conntrack().Tracked(func(f conntrack.TrackedFlow) {
		p := x.find(f.Proto, f.Host.Addr(), f.Host.Port())
		if p != nil && x.tracked[p.Via] && owners[f.Target.Addr()] == p.Endpoint {
			addLive(p, 1)
		}
	})
}

// addFlows adds to the number of all flows.
func addFlows(p *api.PublishStats, n uint64) { p.Flows = plus(p.Flows, n) }

// addLive adds to the number of open flows.
func addLive(p *api.PublishStats, n uint64) { p.Live = plus(p.Live, n) }

func plus(have *uint64, n uint64) *uint64 {
	if have != nil {
		n += *have
	}
	return &n
}

func sum(have *counter.InOut, n counter.InOut) *counter.InOut {
	if have != nil {
		n = n.Add(*have)
	}
	return &n
}

// publishIndex finds the publish of a host address and port: single ports with a map,
// ranges with a search.
type publishIndex struct {
	single map[protoPort][]*api.PublishStats
	ranges []*api.PublishStats
	// tracked has the publish modes whose flows are entries of conntrack.
	tracked map[model.Via]bool
}

type protoPort struct {
	proto model.Proto
	port  uint16
}

func indexPublishes(all []api.PublishStats) publishIndex {
	x := publishIndex{single: make(map[protoPort][]*api.PublishStats, len(all)), tracked: map[model.Via]bool{}}
	for _, m := range paths.Modes() {
		x.tracked[m.Name()] = m.Traits().Tracked
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
func (x publishIndex) all() []*api.PublishStats {
	all := append([]*api.PublishStats(nil), x.ranges...)
	for _, at := range x.single {
		all = append(all, at...)
	}
	return all
}

// hasTracked reports whether there is a publish whose flows are in conntrack.
func (x publishIndex) hasTracked() bool {
	return slices.ContainsFunc(x.all(), func(p *api.PublishStats) bool { return x.tracked[p.Via] })
}

// find returns the publish that answers at the host address, or nil. An invalid
// address stands for all addresses of both families.
func (x publishIndex) find(proto model.Proto, host netip.Addr, port uint16) *api.PublishStats {
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
