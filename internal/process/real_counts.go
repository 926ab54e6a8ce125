package process

import (
	"net/netip"

	"fairlead/internal/daemon/stats"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/counter"
	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/model"
)

// countReals returns a function that reads the counters of real servers from all data
// planes.
func countReals(host *kernel.Host) stats.CountReals {
	return func(services []model.VirtualService) (stats.RealCounts, error) {
		all := stats.RealCounts{}
		byService, err := host.EBPF().BalancerCounts()
		if err != nil {
			return nil, err
		}
		for name, of := range byService {
			for at, c := range of {
				all.Add(name, at, stats.RealCount{Live: c.Active, Begun: c.Flows, Failed: c.Retries + c.Refusals,
					LiveOnly: c.NoTotals,
					Packets:  counter.InOut{In: c.Packets[ebpf.Inward], Out: c.Packets[ebpf.Outward]},
					Bytes:    counter.InOut{In: c.Bytes[ebpf.Inward], Out: c.Bytes[ebpf.Outward]}})
			}
		}
		reals, err := host.IPVS().Stats()
		if err != nil {
			return nil, err
		}
		known := namesByFrontend(services)
		for _, s := range reals {
			v := known[s.Frontend]
			all.Add(v.service, v.at[s.At], stats.RealCount{Live: uint64(s.Active) + uint64(s.Inactive), Begun: s.Flows,
				Packets: counter.InOut{In: s.InPackets, Out: s.OutPackets},
				Bytes:   counter.InOut{In: s.InBytes, Out: s.OutBytes}})
		}
		counts, err := host.NFT().NFTCounts()
		if err != nil {
			return nil, err
		}
		for _, c := range counts {
			v := known[c.Frontend]
			all.Add(v.service, v.at[c.Real], stats.RealCount{Live: c.Active, Begun: c.Begun})
		}
		return all, nil
	}
}

// realNames maps the addresses and ports of a service's real servers, for one port of the
// service, to the addresses and ports with which the service names them.
type realNames struct {
	service string
	at      map[netip.AddrPort]netip.AddrPort
}

// namesByFrontend returns the names for each frontend of the services whose data plane
// counts real servers by their actual ports. Programs at the links count them by name.
func namesByFrontend(services []model.VirtualService) map[model.Frontend]realNames {
	all := map[model.Frontend]realNames{}
	for _, v := range services {
		if v.Plane.Traits().AtLinks {
			continue
		}
		for _, f := range v.Frontends() {
			n := realNames{v.Name, make(map[netip.AddrPort]netip.AddrPort, len(v.Reals))}
			for _, r := range v.Reals {
				n.at[r.At(f.At.Port())] = r.At(0)
			}
			all[f] = n
		}
	}
	return all
}
