package engine

import (
	"net/netip"

	"fairlead/internal/kernel/conntrack"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// flushFlows deletes from conntrack only the flows that a change makes stale: flows
// to a host address and port that is not published any more and to its old
// endpoint, and UDP flows to a newly published port that go to another target. New
// TCP ports have no old flows worth ending. TCP clients of removed services and
// real servers must also get a reset, while the virtual addresses still exist; so
// must the connections of IPVS in cut. flushFlows returns both.
func (e *Engine) flushFlows(ops []plan.Op, cut []conntrack.Flow) ([]conntrack.Flow, error) {
	stale := staleFlows{gone: mappingIndex{}, fresh: mappingIndex{}, local: map[netip.Addr]bool{},
		services: newStaleAnswers(), cut: endsOf(cut)}
	for _, op := range ops {
		stale.note(op)
		stale.services.note(op)
	}
	if len(stale.gone) == 0 && len(stale.fresh) == 0 && stale.services.empty() && len(cut) == 0 {
		return nil, nil
	}
	local, err := e.cfg.Kernel.Net().LocalAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range local {
		stale.local[a] = true
	}
	flushed, err := e.cfg.Flows.Conntrack().Flush(stale.match)
	if err != nil {
		return nil, err
	}
	return append(stale.services.broken(flushed), cut...), nil
}

func endsOf(flows []conntrack.Flow) map[conntrack.Ends]bool {
	ends := make(map[conntrack.Ends]bool, len(flows))
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
	cut map[conntrack.Ends]bool
}

// note adds a step's mappings to gone or fresh.
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

func (s *staleFlows) match(f conntrack.Flow) bool {
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
func (s *staleFlows) hosts(m plan.NFTMapping, f conntrack.Flow) bool {
	host := f.Host.Addr()
	if !m.Host.IsUnspecified() {
		return host == m.Host
	}
	// All of 127.0.0.0/8 is local, though one address is assigned.
	return host.Is4() == m.Host.Is4() && (s.local[host] || host.IsLoopback())
}
