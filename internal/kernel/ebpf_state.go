package kernel

import (
	"fmt"

	"fairlead/internal/cgroup"
	"fairlead/internal/kernel/bpf"
	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// EBPFMappings returns the port mappings in the host's eBPF maps and the grants of
// its workloads, of all Fairlead processes. It is read-only.
func (h *Host) EBPFMappings() (mappings []plan.EBPFMapping, grants []plan.Grant, err error) {
	err = h.withDatapath(func(s *ebpf.ReadOnly) error {
		found, err := s.Mappings()
		for _, l := range found {
			if l.Flags&ebpf.MappingGrant == 0 {
				mappings = append(mappings, h.mappingObject(l))
			}
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read eBPF port mappings: %w", err)
	}
	cookie, err := h.ns.Cookie()
	if err != nil {
		return nil, nil, err
	}
	workloads, err := ebpf.Workloads(cookie)
	if err != nil {
		return nil, nil, err
	}
	for id, w := range workloads {
		path, err := cgroup.Path(id)
		if nlutil.Absent(err) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		for _, g := range w.Grants[:w.Count] {
			grants = append(grants, grantOf(path, g))
		}
	}
	return mappings, grants, nil
}

// grantOf converts an entry of the eBPF maps into a grant.
func grantOf(cgroup string, g bpf.FairleadGrant) plan.Grant {
	o := plan.Grant{Cgroup: cgroup, Proto: model.TCP, Host: ebpf.Netip(g.Host),
		Ports: model.PortRange{First: g.HostFirst, Last: g.HostFirst + (g.ContainerLast - g.ContainerFirst)},
		Own:   model.PortRange{First: g.ContainerFirst, Last: g.ContainerLast}}
	if g.Class&1 != 0 {
		o.Proto = model.UDP
	}
	return o
}
