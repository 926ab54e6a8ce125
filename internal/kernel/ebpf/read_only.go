package ebpf

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// ReadOnly is a read-only view of a data path: where its programs are attached, and its
// flows, mappings and services.
type ReadOnly struct {
	maps  map[string]*ebpf.Map
	links links
	// own says that Close closes the objects.
	own bool
}

// OpenReadOnly opens the data path that a process has pinned in a directory. Returns nil
// if there is none, or one of another version with other maps. All counters are 0 if only theirs differ.
func OpenReadOnly(at string) (*ReadOnly, error) {
	dir := pins(at)
	spec, err := loadSpec(ebpf.MustPossibleCPU())
	if err != nil {
		return nil, err
	}
	s := &ReadOnly{maps: map[string]*ebpf.Map{}, links: links{dir, map[string]link.Link{}}, own: true}
	for _, name := range []string{bpf.FairleadMapFlFlowsTcp, bpf.FairleadMapFlYoungFlows, bpf.FairleadMapFlFlowsUdp,
		bpf.FairleadMapFlPorts, bpf.FairleadMapFlMappings, bpf.FairleadMapFlTotals,
		bpf.FairleadMapFlRings, bpf.FairleadMapFlFrontends, bpf.FairleadMapFlServices, bpf.FairleadMapFlReals,
		bpf.FairleadMapFlLoads, bpf.FairleadMapFlRealTotals} {
		m, err := ebpf.LoadPinnedMap(dir.mapOf(name), nil)
		if errors.Is(err, os.ErrNotExist) {
			return nil, s.Close()
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open pinned map %s: %w", name, err), s.Close())
		}
		s.maps[name] = m
		switch fits := spec.Maps[name].Compatible(m) == nil; {
		case !fits && (slices.Contains(forServices, name) || name == bpf.FairleadMapFlTotals):
			// There are no services, or an earlier version counts in another way.
			delete(s.maps, name)
			if err := m.Close(); err != nil {
				return nil, errors.Join(err, s.Close())
			}
		case !fits:
			return nil, s.Close()
		}
	}
	if err := s.openOutbound(dir); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.links.adopt(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// ReadOnly returns a view of this process's data path, valid until it is closed.
func (p *Datapath) ReadOnly() *ReadOnly {
	return &ReadOnly{maps: p.maps, links: p.attached}
}

// Close releases what OpenReadOnly has opened.
func (s *ReadOnly) Close() error {
	if !s.own {
		return nil
	}
	errs := []error{s.links.close()}
	for _, m := range s.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// Attachment is a program at one hook.
type Attachment struct {
	// Program is its name, and ID the kernel's number for it, which bpftool shows.
	Program string
	ID      uint32
	// Ifindex is the interface's, 0 for a hook of a cgroup.
	Ifindex int
	// Pin is the path of the link that keeps it attached; empty if there is none.
	Pin string
}

// Attachments returns the programs at interfaces and at the cgroup of the host's
// processes. It leaves out programs whose interface is gone, and the tc filters of
// kernels before 6.6, which are not links.
func (s *ReadOnly) Attachments() ([]Attachment, error) {
	var all []Attachment
	for name, l := range s.links.byName {
		info, err := l.Info()
		if err != nil {
			return nil, fmt.Errorf("read eBPF link %s: %w", name, err)
		}
		program, _, _ := strings.Cut(name, "-")
		a := Attachment{Program: program, ID: uint32(info.Program)}
		if s.links.pins != "" {
			a.Pin = s.links.pins.link(name)
		}
		if tcx := info.TCX(); tcx != nil {
			if tcx.Ifindex == 0 {
				continue
			}
			a.Ifindex = int(tcx.Ifindex)
		}
		if xdp := info.XDP(); xdp != nil {
			if xdp.Ifindex == 0 {
				continue
			}
			a.Ifindex = int(xdp.Ifindex)
		}
		all = append(all, a)
	}
	return all, nil
}

// Counts returns the mappings that have counters.
func (s *ReadOnly) Counts() ([]Counted, error) {
	t, err := openTable(s.maps)
	if err != nil {
		return nil, err
	}
	return t.Counts(s.maps)
}

// balancer reads the table of services. Returns nil if the data path has none: the maps for them are
// enlarged one by one with the first one.
func (s *ReadOnly) balancer() (*Balancer, error) {
	for _, name := range []string{bpf.FairleadMapFlFrontends, bpf.FairleadMapFlServices, bpf.FairleadMapFlReals,
		bpf.FairleadMapFlLoads} {
		if s.maps[name] == nil {
			return nil, nil
		}
	}
	return openBalancer(s.maps)
}

// Services returns the virtual services in the table.
func (s *ReadOnly) Services() ([]Service, error) {
	b, err := s.balancer()
	if err != nil || b == nil {
		return nil, err
	}
	return b.Services(), b.Close()
}

// Begun calls fn for each real server of each service with its number of flows since its
// creation.
func (s *ReadOnly) Begun(fn func(service string, real netip.AddrPort, flows uint64)) error {
	b, err := s.balancer()
	if err != nil || b == nil {
		return err
	}
	for name, h := range b.inUse {
		for i, slot := range h.slots {
			fn(name, h.Reals[i].At, b.totals.sum(slot).Flows)
		}
	}
	return b.Close()
}

// Flows returns the flows.
func (s *ReadOnly) Flows() FlowMaps { return s.maps }
