package daemon

import (
	"context"
	"slices"
	"strings"
	"sync"

	"fairlead/internal/api"
	"fairlead/internal/daemon/stats"
	"fairlead/internal/daemon/stored"
	"fairlead/internal/kernel/conntrack"
	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/nft"
	"fairlead/internal/model"
)

// Counters is the part of a host that counts traffic. *kernel.Host implements it.
type Counters interface {
	Inspect() *inspect.Reader
	EBPF() *datapath.Handle
	NFT() *nft.Handle
	Conntrack() *conntrack.Table
}

// meters reads the counters of the host.
type meters struct {
	*state
	services *services
	// counting is locked while counters are read, before the lock of the state. It
	// protects sums.
	counting sync.Mutex
	sums     stats.Sums
}

// Stats reads all counters. Counters that cannot be read are nil, and Problems says
// why.
func (d *Daemon) Stats(ctx context.Context) api.Stats { return d.meters.read(ctx) }

// read implements Stats.
func (m *meters) read(ctx context.Context) api.Stats {
	m.counting.Lock()
	defer m.counting.Unlock()
	s, endpoints := m.counted()
	failed := func(err error) {
		if err != nil {
			s.Problems = append(s.Problems, err.Error())
		}
	}
	links, err := m.cfg.Counters.Inspect().LinkTraffic(linksOf(s.Endpoints, endpoints))
	failed(err)
	for i, e := range s.Endpoints {
		if t, ok := links[e.Endpoint]; ok {
			s.Endpoints[i].Traffic = &t
		}
	}
	m.sums.AddUp(s.Networks, s.Endpoints)
	failed(m.countPublishes(ctx, &s, endpoints))
	s.Services, s.Checks = m.services.stats(), m.services.health.Counters()
	if fill, ok := m.cfg.Counters.Conntrack().Fill(); ok {
		s.Conntrack = &fill
	}
	stats.Explain(&s)
	return s
}

// counted returns what there is to count, and the endpoints by name.
func (m *meters) counted() (api.Stats, map[string]model.Endpoint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := api.Stats{Networks: []api.NetworkStats{}, Endpoints: []api.EndpointStats{},
		Publishes: []api.PublishStats{}, Attachments: map[api.Status]int{api.Up: 0, api.Waiting: 0, api.Broken: 0}}
	drivers, endpoints := map[string]model.Driver{}, map[string]model.Endpoint{}
	for _, n := range m.desired.Networks {
		drivers[n.Name] = n.Driver
		s.Networks = append(s.Networks, api.NetworkStats{Network: n.Name, Driver: n.Driver})
	}
	for _, e := range m.full.Endpoints {
		endpoints[e.Name] = e
		s.Endpoints = append(s.Endpoints, api.EndpointStats{Endpoint: e.Name, Network: e.Network,
			Driver: drivers[e.Network]})
	}
	for _, p := range m.full.Publishes {
		s.Publishes = append(s.Publishes, api.PublishStats{Network: endpoints[p.Endpoint].Network, Publish: p})
	}
	for _, a := range m.desired.Attachments {
		_, up := endpoints[a.Name]
		s.Attachments[stored.StatusOf(up, m.problems[a.Name])]++
	}
	slices.SortFunc(s.Networks, func(a, b api.NetworkStats) int { return strings.Compare(a.Network, b.Network) })
	slices.SortFunc(s.Endpoints, func(a, b api.EndpointStats) int { return strings.Compare(a.Endpoint, b.Endpoint) })
	slices.SortFunc(s.Publishes, func(a, b api.PublishStats) int { return a.Compare(b.Publish) })
	return s, endpoints
}

// linksOf returns the links of the endpoints that have one.
func linksOf(all []api.EndpointStats, endpoints map[string]model.Endpoint) []inspect.EndpointLink {
	var links []inspect.EndpointLink
	for _, s := range all {
		if s.Driver.Traits().NoLink {
			continue
		}
		e := endpoints[s.Endpoint]
		l := inspect.EndpointLink{Endpoint: e.Name, Sandbox: e.Sandbox}
		if e.HostInterface == "" {
			l.Name = e.InterfaceName()
		}
		links = append(links, l)
	}
	return links
}
