package ebpf

import (
	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
)

// Mappings returns what the table of the plane holds.
func (s *ReadOnly) Mappings() ([]Mapping, error) {
	t, err := openTable(s.maps)
	if err != nil {
		return nil, err
	}
	return t.Mappings(), nil
}

// Workloads returns the workloads of all processes of ours on the host of that
// cookie, by their cgroups, without loading a program.
func Workloads(cookie uint64) (map[uint64]bpf.FairleadWorkload, error) {
	m, err := findShared(cookie)
	if m == nil || err != nil {
		return nil, err
	}
	defer m.Close()
	return (&Datapath{maps: map[string]*ebpf.Map{bpf.FairleadMapFlWorkloads: m}}).Workloads()
}
