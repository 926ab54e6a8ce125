package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/cgroup"
	"fairlead/internal/kernel/bpf"
	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// EBPFMappings returns the port mappings in the host's eBPF maps and the grants of
// its workloads, of all Fairlead processes. It is read-only.
func (h *Handle) EBPFMappings() (mappings []plan.EBPFMapping, grants []plan.Grant, err error) {
	err = h.WithDatapath(func(s *ebpf.ReadOnly) error {
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

// Program is an attached eBPF program of Fairlead.
type Program struct {
	// Name is the program's name, and ID the kernel's number for it. Pin is the
	// file in the bpffs that keeps it attached.
	Name string
	ID   uint32
	Pin  string
	// Link is the link that the program is attached to. It is empty for a program
	// at the socket calls of the host's processes.
	Link string
}

// State is a snapshot of the eBPF data path: its port mappings, its grants
// and its attached programs.
type State struct {
	Mappings []plan.EBPFMapping
	Grants   []plan.Grant
	Programs []Program
	// Outbound are the links of sandboxes whose connections to hosts outside the
	// programs translate. Sources are the addresses that these get, by the uplink, each
	// with the network that the next hop must be in.
	Outbound []plan.Outbound
	Sources  map[string]netip.Prefix
}

// AtIngress reports whether the program may translate packets that arrive on its link.
func (p Program) AtIngress() bool { return p.Name == ebpf.Uplink || p.Name == ebpf.Sandbox }

// State reads the state of the eBPF data path, whichever process has set it
// up. It changes nothing.
func (h *Handle) State() (State, error) {
	mappings, grants, err := h.EBPFMappings()
	if err != nil {
		return State{}, err
	}
	found := State{Mappings: mappings, Grants: grants}
	err = h.WithDatapath(func(s *ebpf.ReadOnly) error {
		attached, err := s.Attachments()
		if err != nil {
			return err
		}
		for _, a := range attached {
			p := Program{Name: a.Program, ID: a.ID, Pin: a.Pin}
			if a.Ifindex != 0 {
				l, err := h.rtnl.LinkByIndex("", a.Ifindex)
				if nlutil.Absent(err) {
					continue // the link was deleted meanwhile
				}
				if err != nil {
					return err
				}
				p.Link = l.Attrs().Name
			}
			found.Programs = append(found.Programs, p)
		}
		return readOutbounds(h, s, &found)
	})
	slices.SortFunc(found.Mappings, func(a, b plan.EBPFMapping) int { return strings.Compare(a.Key(), b.Key()) })
	return found, err
}

// EBPFFlows returns the flows in the table of Fairlead's eBPF programs, without
// the stale ones.
func (h *Handle) EBPFFlows() (all []ebpf.Flow, err error) {
	err = h.WithDatapath(func(s *ebpf.ReadOnly) error {
		return s.Flows().Each(func(f ebpf.Flow) {
			if !f.Stale {
				all = append(all, f)
			}
		})
	})
	return all, err
}

// ServiceMapping returns the key under which MappingCounts counts the flows
// to a real server of a service.
func ServiceMapping(service string, real netip.AddrPort) string {
	return plan.EBPFService{Balanced: plan.Balanced{Service: service}}.Key() + " " + real.String()
}

// MappingCounts returns two kinds of counts. The key of a port mapping has
// the number of packets that were redirected to its endpoint plus the number of
// flows that it has begun. A key of ServiceMapping has the number of flows that
// were assigned to that real server.
func (h *Handle) MappingCounts() (map[string]uint64, error) {
	counts := map[string]uint64{}
	err := h.WithDatapath(func(s *ebpf.ReadOnly) error {
		all, err := s.Counts()
		for _, c := range all {
			counts[h.mappingObject(c.Mapping).Key()] += c.Packets[ebpf.Inward] + c.Flows
		}
		if err != nil {
			return err
		}
		return s.Begun(func(service string, real netip.AddrPort, flows uint64) {
			counts[ServiceMapping(service, real)] += flows
		})
	})
	return counts, err
}

// WithDatapath calls fn with a read-only view of the eBPF data path: that of
// this process, or the pinned one. Without either it does nothing.
func (h *Handle) WithDatapath(fn func(*ebpf.ReadOnly) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ebpfState != nil {
		return fn(h.ebpfState.ReadOnly())
	}
	if h.opt.Pins == "" {
		return nil
	}
	cookie, err := h.ns.Cookie()
	if err != nil {
		return err
	}
	s, err := ebpf.OpenReadOnly(h.pins(cookie))
	if err != nil || s == nil {
		return err
	}
	return errors.Join(fn(s), s.Close())
}
