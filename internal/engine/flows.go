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
// TCP flow to a new port has no predecessor worth ending.
func (e *Engine) flushFlows(ops []plan.Op) error {
	var errs []error
	for _, v4 := range []bool{true, false} {
		stale := staleFlows{gone: mappingIndex{}, fresh: mappingIndex{}}
		for _, op := range ops {
			stale.note(op, v4)
		}
		if len(stale.gone) == 0 && len(stale.fresh) == 0 {
			continue
		}
		local, err := e.cfg.Kernel.LocalAddrs()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		stale.local = map[netip.Addr]bool{}
		for _, a := range local {
			stale.local[a] = true
		}
		errs = append(errs, e.cfg.Kernel.FlushFlows(v4, stale.match))
	}
	return errors.Join(errs...)
}

type protoPort struct {
	proto model.Proto
	port  uint16
}

// mappingIndex finds the mappings of a host port.
type mappingIndex map[protoPort][]plan.Mapping

func (x mappingIndex) add(m plan.Mapping) {
	for p := int(m.Ports.First); p <= int(m.Ports.Last); p++ {
		at := protoPort{m.Proto, uint16(p)}
		x[at] = append(x[at], m)
	}
}

type staleFlows struct {
	gone, fresh mappingIndex
	local       map[netip.Addr]bool
}

// note sorts a step's mappings of one family into those gone and those new.
func (s *staleFlows) note(op plan.Op, v4 bool) {
	m, ok := op.Object.(plan.Mapping)
	if !ok || m.Host.Is4() != v4 {
		return
	}
	if op.Del {
		s.gone.add(m)
		return
	}
	if old, ok := op.Old.(plan.Mapping); ok {
		s.gone.add(old)
	}
	if m.Proto == model.UDP {
		s.fresh.add(m)
	}
}

func (s *staleFlows) match(f kernel.Flow) bool {
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
func (s *staleFlows) hosts(m plan.Mapping, f kernel.Flow) bool {
	if m.Host.IsUnspecified() {
		// All of 127.0.0.0/8 is local, though one address is assigned.
		return s.local[f.Host.Addr()] || f.Host.Addr().IsLoopback()
	}
	return f.Host.Addr() == m.Host
}
