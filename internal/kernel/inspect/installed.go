package inspect

import (
	"fmt"
	"slices"
	"strings"

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
func (h *Reader) InstalledServices() ([]InstalledService, error) {
	var all []InstalledService
	for _, read := range []struct {
		plane    model.Plane
		services func() ([]plan.Balanced, error)
	}{
		{model.PlaneEBPF, h.ebpf.Installed}, {model.PlaneNFT, h.nft.Installed}, {model.PlaneIPVS, h.ipvs.Installed},
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
