package daemon

import (
	"context"
	"slices"
	"strings"

	"fairlead/internal/api"
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

// Stats reads all counters. Counters that cannot be read are nil, and Problems says
// why.
func (d *Daemon) Stats(ctx context.Context) api.Stats {
	d.counting.Lock()
	defer d.counting.Unlock()
	s, endpoints := d.counted()
	failed := func(err error) {
		if err != nil {
			s.Problems = append(s.Problems, err.Error())
		}
	}
	links, err := d.cfg.Counters.Inspect().LinkTraffic(linksOf(s.Endpoints, endpoints))
	failed(err)
	for i, e := range s.Endpoints {
		if t, ok := links[e.Endpoint]; ok {
			s.Endpoints[i].Traffic = &t
		}
	}
	d.sums.AddUp(s.Networks, s.Endpoints)
	failed(d.countPublishes(ctx, &s, endpoints))
	s.Services, s.Checks = d.serviceStats(), d.health.Counters()
	if fill, ok := d.cfg.Counters.Conntrack().Fill(); ok {
		s.Conntrack = &fill
	}
	return s
}

// counted returns what there is to count, and the endpoints by name.
func (d *Daemon) counted() (api.Stats, map[string]model.Endpoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := api.Stats{Attachments: map[api.Status]int{api.Up: 0, api.Waiting: 0, api.Broken: 0}}
	drivers, endpoints := map[string]model.Driver{}, map[string]model.Endpoint{}
	for _, n := range d.desired.Networks {
		drivers[n.Name] = n.Driver
		s.Networks = append(s.Networks, api.NetworkStats{Network: n.Name, Driver: n.Driver})
	}
	for _, e := range d.full.Endpoints {
		endpoints[e.Name] = e
		s.Endpoints = append(s.Endpoints, api.EndpointStats{Endpoint: e.Name, Network: e.Network,
			Driver: drivers[e.Network]})
	}
	for _, p := range d.full.Publishes {
		s.Publishes = append(s.Publishes, api.PublishStats{Network: endpoints[p.Endpoint].Network, Publish: p})
	}
	for _, a := range d.desired.Attachments {
		_, up := endpoints[a.Name]
		s.Attachments[statusOf(up, d.problems[a.Name])]++
	}
	slices.SortFunc(s.Networks, func(a, b api.NetworkStats) int { return strings.Compare(a.Network, b.Network) })
	slices.SortFunc(s.Endpoints, func(a, b api.EndpointStats) int { return strings.Compare(a.Endpoint, b.Endpoint) })
	slices.SortFunc(s.Publishes, func(a, b api.PublishStats) int { return a.Compare(b.Publish) })
	return s, endpoints
}

func statusOf(up bool, problem string) api.Status {
	switch {
	case up:
		return api.Up
	case problem != "":
		return api.Broken
	}
	return api.Waiting
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
