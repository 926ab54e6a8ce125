package daemon

import (
	"context"
	"errors"
	"net/netip"

	"fairlead/internal/api"
	"fairlead/internal/daemon/stats"
	"fairlead/internal/kernel/conntrack"
	"fairlead/internal/model"
)

// countPublishes reads the counters of all publish modes. A port that the kernel maps
// may also have a listener of the proxy, for clients that the kernel cannot redirect;
// both count for the publish.
func (m *meters) countPublishes(ctx context.Context, s *api.Stats, endpoints map[string]model.Endpoint) error {
	x := stats.NewIndex(s.Publishes)
	return errors.Join(m.countProxied(ctx, s, x), m.countMappings(s, x), m.countMapped(x), m.countTracked(x, endpoints))
}

// countProxied counts the traffic of the proxy's listeners, as payload.
func (m *meters) countProxied(ctx context.Context, s *api.Stats, x stats.Index) error {
	total, each, running, err := m.engine.Proxied(ctx)
	if !running {
		return err
	}
	s.Proxy = &total
	x.AddProxied(each)
	return nil
}

// countMappings counts the traffic of the eBPF data path, as whole frames.
func (m *meters) countMappings(s *api.Stats, x stats.Index) error {
	each, fill, there, err := m.cfg.Counters.EBPF().MappingTraffic()
	if !there {
		return err
	}
	s.EBPF = &fill
	x.AddMapped(each)
	return nil
}

// countMapped counts the flows that matched elements of the nft maps.
func (m *meters) countMapped(x stats.Index) error {
	if !x.HasTracked() {
		return nil
	}
	each, err := m.cfg.Counters.NFT().MappingTraffic()
	for _, c := range each {
		if p := x.Find(c.Proto, c.Host, c.Ports.First); p != nil {
			stats.AddFlows(p, c.Flows)
		}
	}
	return err
}

// countTracked counts the open flows of publishes whose flows are in conntrack.
func (m *meters) countTracked(x stats.Index, endpoints map[string]model.Endpoint) error {
	if !x.HasTracked() {
		return nil
	}
	owners := map[netip.Addr]string{}
	for name, e := range endpoints {
		for _, a := range e.AllAddresses() {
			owners[a] = name
		}
	}
	for _, p := range x.All() {
		if x.Tracked[p.Via] {
			stats.AddLive(p, 0)
		}
	}
	return m.cfg.Counters.Conntrack().Tracked(func(f conntrack.TrackedFlow) {
		p := x.Find(f.Proto, f.Host.Addr(), f.Host.Port())
		if p != nil && x.Tracked[p.Via] && owners[f.Target.Addr()] == p.Endpoint {
			stats.AddLive(p, 1)
		}
	})
}
