package ebpf

import (
	"fairlead/internal/kernel/bpf"
)

// Mappings returns the entries of the table of port mappings.
func (s *ReadOnly) Mappings() ([]Mapping, error) {
	t, err := openTable(s.maps)
	if err != nil {
		return nil, err
	}
	return t.Mappings(), nil
}

// Workloads returns the workloads of all Fairlead processes on the host with that
// cookie, by cgroup id. It loads no program.
func Workloads(cookie uint64) (map[uint64]bpf.FairleadWorkload, error) {
	m, err := findShared(cookie)
	if m == nil || err != nil {
		return nil, err
	}
	defer m.Close()
	return WorkloadMap{m}.All()
}
