package datapath

import (
	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/plan"
)

// Installed returns the virtual services in the eBPF maps. It is read-only.
func (h *Handle) Installed() (all []plan.Balanced, err error) {
	names, err := h.rtnl.LinkNames()
	if err != nil {
		return nil, err
	}
	return all, h.WithDatapath(func(s *ebpf.ReadOnly) error {
		found, err := s.Services()
		for _, v := range found {
			all = append(all, balancedOf(v, names, nil))
		}
		return err
	})
}
