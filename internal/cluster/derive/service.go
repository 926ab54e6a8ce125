package derive

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
	"fairlead/internal/recovery"
)

// service is what is known about a virtual service.
type service struct {
	record record.Service
	known  bool // the record exists and is valid
	reals  map[string]real
	// derived is the last result, nil if the node does not have the service. It is only valid if
	// stale is false.
	derived *model.VirtualService
	problem error
	stale   bool
}

// real is the record of a real server.
type real struct {
	node     string
	revision int64
	record.Real
}

func (d *Deriver) readService(e kv.Entry, exists bool) (err error) {
	name := record.Names(record.Services, e.Key, 1)[0]
	s := d.service(name)
	s.record, s.known, s.stale = record.Service{}, false, true
	if !exists {
		return nil
	}
	r, err := record.Decode[record.Service](e)
	if err != nil {
		return fmt.Errorf("service %s: %w", name, err)
	}
	s.record, s.known = r, true
	return nil
}

func (d *Deriver) readReal(e kv.Entry, exists bool) error {
	names := record.Names(record.Reals, e.Key, 3)
	if len(names) != 3 {
		return fmt.Errorf("record %s: want %sSERVICE/NODE/NAME", e.Key, record.Reals)
	}
	s := d.service(names[0])
	delete(s.reals, e.Key)
	s.stale = s.stale || names[1] != d.node // the node selects its own real servers
	if !exists {
		return nil
	}
	r, err := record.Decode[record.Real](e)
	if err != nil {
		return err
	}
	s.reals[e.Key] = real{names[1], e.Revision, r}
	return nil
}

func (d *Deriver) staleServices() {
	for _, s := range d.services {
		s.stale = true
	}
}

func (d *Deriver) service(name string) *service {
	s := d.services[name]
	if s == nil {
		s = &service{reals: map[string]real{}}
		d.services[name] = s
	}
	return s
}

// deriveServices returns the node's services in the order of their names.
func (d *Deriver) deriveServices() (services []model.VirtualService, problems []string) {
	for _, name := range slices.Sorted(maps.Keys(d.services)) {
		s := d.services[name]
		if s.stale {
			// A result is a new value, and what it is derived from is only read. The last result stays.
			if err := recovery.Object("service "+name, func() {
				s.derived,
					s.problem = d.deriveService(s)
			}); err != nil {
				s.problem = err
			}
			s.stale = false
		}
		if s.derived != nil {
			services = append(services, *s.derived)
		}
		if s.problem != nil {
			problems = append(problems, fmt.Sprintf("service %s: %v", name, s.problem))
		}
		if !s.known && len(s.reals) == 0 {
			delete(d.services, name)
		}
	}
	return services, problems
}

// deriveService returns the service as this node has it. A node that accepts no packets for it only
// prepares its own real servers, if these get packets untranslated.
func (d *Deriver) deriveService(s *service) (*model.VirtualService, error) {
	if !s.known {
		return nil, nil
	}
	v := s.record.Spec.Clone()
	v.Origin = model.FromCluster
	for i, r := range v.Reals {
		if d.drains(r) {
			v.Reals[i].State = model.RealDraining
		}
	}
	if in := s.record.Ingress; len(in) > 0 && !slices.Contains(in, d.nodes[d.node].Name) {
		if v.Forward != model.ForwardDirect {
			return nil, nil
		}
		v.NoIngress, v.Check = true, model.Check{}
		return &v, nil
	}
	others, err := d.others(s)
	v.Reals = append(v.Reals, others...)
	return &v, err
}

// drains reports whether a real server of the service's specification is on a drained node. A selector
// finds only those of this node.
func (d *Deriver) drains(r model.RealServer) bool {
	if !r.Select.IsZero() {
		return d.nodes[d.node].Drained
	}
	for _, n := range d.networks {
		if d.nodes[d.holder(n, r.Address)].Drained {
			return true
		}
	}
	return false
}

// others returns the real servers of other nodes. If several records have an address, the newest counts:
// the sandbox moves. The error names records that cannot be used.
func (d *Deriver) others(s *service) ([]model.RealServer, error) {
	newest := map[netip.AddrPort]string{}
	for key, r := range s.reals {
		at := netip.AddrPortFrom(r.Address, r.Port)
		if _, exists := d.nodes[r.node]; !exists || r.node == d.node {
			continue
		}
		if have, known := newest[at]; !known || s.reals[have].revision < r.revision {
			newest[at] = key
		}
	}
	var all []model.RealServer
	var errs []error
	for _, key := range slices.Sorted(maps.Values(newest)) {
		r := s.reals[key]
		server := model.RealServer{Address: r.Address, Port: r.Port, Weight: r.Weight,
			Node: d.nodes[r.node].Name}
		if r.Draining || d.nodes[r.node].Drained {
			server.State = model.RealDraining
		}
		if err := d.acceptable(s.record.Spec, server); err != nil {
			errs = append(errs, fmt.Errorf("record %s: %w", key, err))
			continue
		}
		if !slices.ContainsFunc(s.record.Spec.Reals, server.Is) && len(all)+len(s.record.Spec.Reals) < model.MaxReals {
			all = append(all, server)
		}
	}
	return all, errors.Join(errs...)
}

// acceptable returns an error for a real server that another node cannot have: its address is in no
// network that the service selects, or is this node's.
func (d *Deriver) acceptable(v model.VirtualService, r model.RealServer) error {
	selected := slices.ContainsFunc(v.Reals, func(s model.RealServer) bool {
		n := d.networks[s.Select.Network]
		return n != nil && n.known && n.within(r.Address) && !n.isHost(r.Address, d.node)
	})
	if !selected {
		return fmt.Errorf("%s is no address of another node in a network that the service selects", r.Address)
	}
	v.Reals = []model.RealServer{r}
	return v.Validate()
}

// isHost reports whether the address may be that of the node itself: the first one of a block.
func (n *network) isHost(a netip.Addr, node string) bool {
	for p, b := range n.blocks {
		if b.Node == node && (a == p.Addr() || a == p.Addr().Next()) {
			return true
		}
	}
	return false
}
