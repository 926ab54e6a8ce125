package kernel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/ipvs"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// InstalledService is a virtual service that a data plane has in the kernel,
// created by Fairlead or by another program.
type InstalledService struct {
	plan.Balanced
	Plane model.Plane
}

// InstalledServices returns the virtual services of every data plane. It is
// read-only. nftables has no weights: there the weight is a real server's number of
// buckets. IPVS has no names, and its list includes the services of other programs.
func (h *Host) InstalledServices() ([]InstalledService, error) {
	var all []InstalledService
	for _, read := range []struct {
		plane    model.Plane
		services func() ([]plan.Balanced, error)
	}{
		{model.PlaneEBPF, h.installedEBPF}, {model.PlaneNFT, h.nft.Installed}, {model.PlaneIPVS, h.installedIPVS},
	} {
		found, err := read.services()
		if err != nil {
			return nil, fmt.Errorf("read virtual services: %w", err)
		}
		for _, s := range found {
			all = append(all, InstalledService{s, read.plane})
		}
	}
	slices.SortStableFunc(all, func(a, b InstalledService) int { return strings.Compare(a.Service, b.Service) })
	return all, nil
}

func (h *Host) installedEBPF() (all []plan.Balanced, err error) {
	names, err := h.rtnl.LinkNames()
	if err != nil {
		return nil, err
	}
	return all, h.withDatapath(func(s *ebpf.ReadOnly) error {
		found, err := s.Services()
		for _, v := range found {
			all = append(all, balancedOf(v, names, nil))
		}
		return err
	})
}

// installedIPVS returns the virtual services of IPVS that have an address, without
// those for firewall marks.
func (h *Host) installedIPVS() ([]plan.Balanced, error) {
	b := &h.balancer
	b.mu.Lock()
	defer b.mu.Unlock()
	if there, err := b.reach(h.ns); err != nil || !there {
		return nil, err
	}
	found, err := b.conn.Services()
	if err != nil {
		return nil, err
	}
	var all []plan.Balanced
	for _, s := range found {
		if s.Mark != 0 {
			continue
		}
		reals, err := b.conn.Destinations(s.ID)
		if err != nil {
			return nil, err
		}
		all = append(all, balancedOfIPVS(s, reals))
	}
	slices.SortFunc(all, func(a, b plan.Balanced) int { return a.Frontends[0].Compare(b.Frontends[0]) })
	return all, nil
}

func balancedOfIPVS(s ipvs.Service, reals []ipvs.Destination) plan.Balanced {
	v := fromIPVS(s, reals)
	return plan.Balanced{Proto: v.Proto, Frontends: []netip.AddrPort{s.At},
		Scheduler: model.Scheduler(s.Scheduler), Forward: v.Forward, Tunnel: v.Tunnel, Persistence: v.Persistence,
		Backends: v.Reals}
}
