package stats

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"fairlead/internal/api"
	"fairlead/internal/daemon/state"
	"fairlead/internal/daemon/stored"
	"fairlead/internal/health"
	"fairlead/internal/kernel/conntrack"
	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/nft"
	"fairlead/internal/model"
	"fairlead/internal/proxy"
)

// Counters is the part of a host that counts traffic. *kernel.Host implements it.
type Counters interface {
	Inspect() *inspect.Reader
	EBPF() *datapath.Handle
	NFT() *nft.Handle
	Conntrack() *conntrack.Table
}

// Config contains what a Reader needs.
type Config struct {
	State    *state.State
	Counters Counters
	// Proxied reads the counters of the proxy, as engine.Engine does.
	Proxied func(context.Context) (total model.ProxyStats, each []proxy.ListenerStats, running bool, err error)
	// Services returns the counters of virtual services and of the checks.
	Services func() ([]api.ServiceStats, health.Counters)
}

// Reader reads the counters of the host. Its methods may be called concurrently.
type Reader struct {
	cfg Config
	// counting is locked while counters are read, before the mutex of the state. It
	// protects sums.
	counting sync.Mutex
	sums     sums
}

// NewReader returns a Reader that has read nothing yet.
func NewReader(cfg Config) *Reader { return &Reader{cfg: cfg} }

// Stats reads all counters. Counters that cannot be read are nil, and Problems says
// why. It locks the mutex of the state.
func (m *Reader) Stats(ctx context.Context) api.Stats {
	m.counting.Lock()
	defer m.counting.Unlock()
	s, endpoints := m.counted()
	failed := func(err error) {
		if err != nil {
			s.Problems = append(s.Problems, err.Error())
		}
	}
	failed(m.countLinks(&s, endpoints))
	x := newIndex(s.Publishes)
	failed(errors.Join(m.countPublishes(ctx, &s, x), m.countTracked(x, endpoints)))
	s.Services, s.Checks = m.cfg.Services()
	if fill, ok := m.cfg.Counters.Conntrack().Fill(); ok {
		s.Conntrack = &fill
	}
	explain(&s)
	return s
}

// Fill reads only how full the kernel's tables are. It costs the same however many endpoints there are.
func (m *Reader) Fill() (s api.Stats) {
	fill, there, err := datapath.Fill(m.cfg.Counters.EBPF())
	if err != nil {
		s.Problems = append(s.Problems, err.Error())
	}
	if there {
		s.EBPF = &fill
	}
	if fill, ok := m.cfg.Counters.Conntrack().Fill(); ok {
		s.Conntrack = &fill
	}
	return s
}

// counted returns what there is to count, and the endpoints by name. It locks the mutex of the state.
func (m *Reader) counted() (api.Stats, map[string]model.Endpoint) {
	m.cfg.State.Lock()
	defer m.cfg.State.Unlock()
	desired, applied := m.cfg.State.Desired(), m.cfg.State.Applied()
	s := api.Stats{Networks: []api.NetworkStats{}, Endpoints: []api.EndpointStats{},
		Publishes: []api.PublishStats{}, Attachments: map[api.Status]int{api.Up: 0, api.Waiting: 0, api.Broken: 0}}
	drivers, endpoints := map[string]model.Driver{}, map[string]model.Endpoint{}
	for _, n := range desired.Networks {
		drivers[n.Name] = n.Driver
		s.Networks = append(s.Networks, api.NetworkStats{Network: n.Name, Driver: n.Driver})
	}
	for _, e := range applied.Endpoints {
		endpoints[e.Name] = e
		s.Endpoints = append(s.Endpoints, api.EndpointStats{Endpoint: e.Name, Network: e.Network,
			Driver: drivers[e.Network]})
	}
	for _, p := range applied.Publishes {
		s.Publishes = append(s.Publishes, api.PublishStats{Network: endpoints[p.Endpoint].Network, Publish: p})
	}
	for _, a := range desired.Attachments {
		_, up := endpoints[a.Name]
		s.Attachments[stored.StatusOf(up, m.cfg.State.Problems[a.Name])]++
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

// countLinks counts the traffic of endpoints and networks. If it fails, that of networks is not known: without the
// counters of its endpoints, a network would seem to have lost them.
func (m *Reader) countLinks(s *api.Stats, endpoints map[string]model.Endpoint) error {
	links, err := m.cfg.Counters.Inspect().LinkTraffic(linksOf(s.Endpoints, endpoints))
	if err != nil {
		return err
	}
	for i, e := range s.Endpoints {
		if t, ok := links[e.Endpoint]; ok {
			s.Endpoints[i].Traffic = &t
		}
	}
	m.sums.addUp(s.Networks, s.Endpoints)
	return nil
}

// countPublishes reads the counters of all publish modes, but not the open flows in conntrack. A port that the kernel
// maps may also have a listener of the proxy, for clients that the kernel cannot redirect; both count for the publish.
func (m *Reader) countPublishes(ctx context.Context, s *api.Stats, x index) error {
	return errors.Join(m.countProxied(ctx, s, x), m.countMappings(s, x), m.countMapped(x))
}

// countProxied counts the traffic of the proxy's listeners, as payload.
func (m *Reader) countProxied(ctx context.Context, s *api.Stats, x index) error {
	total, each, running, err := m.cfg.Proxied(ctx)
	if !running {
		return err
	}
	s.Proxy = &total
	x.addProxied(each)
	return nil
}

// countMappings counts the traffic of the eBPF data path, as whole frames.
func (m *Reader) countMappings(s *api.Stats, x index) error {
	each, fill, there, err := m.cfg.Counters.EBPF().MappingTraffic()
	if !there {
		return err
	}
	s.EBPF = &fill
	x.addMapped(each)
	return nil
}

// countMapped counts the flows that matched elements of the nft maps.
func (m *Reader) countMapped(x index) error {
	if !x.hasTracked() {
		return nil
	}
	each, err := m.cfg.Counters.NFT().MappingTraffic()
	for _, c := range each {
		if p := x.find(c.Proto, c.Host, c.Ports.First); p != nil {
			addFlows(p, c.Flows)
		}
	}
	return err
}

// countTracked counts the open flows of publishes whose flows are in conntrack.
func (m *Reader) countTracked(x index, endpoints map[string]model.Endpoint) error {
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
	return m.cfg.Counters.Conntrack().Tracked(func(f conntrack.TrackedFlow) {
		p := x.find(f.Proto, f.Host.Addr(), f.Host.Port())
		if p != nil && x.tracked[p.Via] && owners[f.Target.Addr()] == p.Endpoint {
			addLive(p, 1)
		}
	})
}
