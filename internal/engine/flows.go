package engine

import (
	"errors"
	"net/netip"

	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// flushFlows makes conntrack forget the flows that a change leaves stale, and
// no others: those to a host address and port that was taken away and went
// to its old endpoint, and UDP flows to one that is new and go elsewhere. A
// TCP flow to a new port has no predecessor worth ending. Clients of services, or of
// real servers, that are gone are reset, before their addresses go, too; those of
// IPVS are cut.
func (e *Engine) flushFlows(ops []plan.Op, cut []kernel.Flow) error {
	stale := staleFlows{gone: mappingIndex{}, fresh: mappingIndex{}, local: map[netip.Addr]bool{}, services: newStaleAnswers(), cut: endsOf(cut)}
	for _, op := range ops {
		stale.note(op)
		stale.services.note(op)
	}
	if len(stale.gone) == 0 && len(stale.fresh) == 0 && stale.services.empty() && len(cut) == 0 {
		return nil
	}
	local, err := e.cfg.Kernel.LocalAddrs()
	if err != nil {
		return err
	}
	for _, a := range local {
		stale.local[a] = true
	}
	flushed, err := e.cfg.Kernel.FlushFlows(stale.match)
	if err != nil {
		return err
	}
	return e.resetClients(append(stale.services.broken(flushed), cut...))
}

// resetClients ends the connections of clients. Conntrack takes what is said then
// for connections of the host itself, which mostly the host has begun, and must
// forget them: for some seconds a new one from the same port would be one of
// those, and be refused.
func (e *Engine) resetClients(flows []kernel.Flow) error {
	if len(flows) == 0 {
		return nil
	}
	reset := endsOf(flows)
	err := e.cfg.Kernel.ResetClients(flows)
	_, failed := e.cfg.Kernel.FlushFlows(func(f kernel.Flow) bool {
		return f.Proto == model.TCP && (reset[kernel.Ends{Client: f.Host, Host: f.Client}] || reset[f.Ends()] && f.Target == f.Host)
	})
	return errors.Join(err, failed)
}

func endsOf(flows []kernel.Flow) map[kernel.Ends]bool {
	ends := make(map[kernel.Ends]bool, len(flows))
	for _, f := range flows {
		ends[f.Ends()] = true
	}
	return ends
}

type protoPort struct {
	proto model.Proto
	port  uint16
}

// mappingIndex finds the mappings of a host port.
type mappingIndex map[protoPort][]plan.NFTMapping

func (x mappingIndex) add(m plan.NFTMapping) {
	for p := int(m.Ports.First); p <= int(m.Ports.Last); p++ {
		at := protoPort{m.Proto, uint16(p)}
		x[at] = append(x[at], m)
	}
}

type staleFlows struct {
	gone, fresh mappingIndex
	local       map[netip.Addr]bool
	services    staleAnswers
	// cut are TCP flows of IPVS.
	cut map[kernel.Ends]bool
}

// note sorts a step's mappings into those gone and those new.
func (s *staleFlows) note(op plan.Op) {
	m, ok := op.Object.(plan.NFTMapping)
	if !ok {
		return
	}
	if op.Del {
		s.gone.add(m)
		return
	}
	if old, ok := op.Old.(plan.NFTMapping); ok {
		s.gone.add(old)
	}
	if m.Proto == model.UDP {
		s.fresh.add(m)
	}
}

func (s *staleFlows) match(f kernel.Flow) bool {
	if s.services.match(f) || f.Proto == model.TCP && s.cut[f.Ends()] {
		return true
	}
	at := protoPort{f.Proto, f.Host.Port()}
	for _, m := range s.gone[at] {
		if s.hosts(m, f) && f.Target.Addr() == m.To {
			return true
		}
	}
	for _, m := range s.fresh[at] {
		if s.hosts(m, f) && f.Target.Addr() != m.To {
			return true
		}
	}
	return false
}

// hosts reports whether the flow went to a host address of the mapping.
func (s *staleFlows) hosts(m plan.NFTMapping, f kernel.Flow) bool {
	host := f.Host.Addr()
	if !m.Host.IsUnspecified() {
		return host == m.Host
	}
	// All of 127.0.0.0/8 is local, though one address is assigned.
	return host.Is4() == m.Host.Is4() && (s.local[host] || host.IsLoopback())
}
