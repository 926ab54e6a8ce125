package engine

import (
	"errors"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/conntrack"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Theory of operation. A client gets its reset only while the host has the virtual
// address. So the addresses of removed services stay in the plan until the clients have
// answered. Then a second step removes those that no service has again. The record has
// these addresses like all others, so an engine that starts meanwhile removes them.

// reset is a reset of clients that has begun.
type reset struct {
	flows []conntrack.Flow
	// kept are the virtual addresses that exist only for the reset, unless a service has
	// them again.
	kept plan.Plan
}

// resets are the resets that have begun, in this order.
type resets []*reset

// addTo returns the plan with the virtual addresses that resets need. It does not
// modify p.
func (rs resets) addTo(p plan.Plan) plan.Plan {
	for _, r := range rs {
		for _, o := range r.kept {
			if !contains(p, o) {
				p = append(slices.Clip(p), o)
			}
		}
	}
	return p
}

func contains(p plan.Plan, o plan.Object) bool {
	return slices.ContainsFunc(p, func(other plan.Object) bool { return other.Key() == o.Key() })
}

// resetClients resets the clients of flows, or passes that on to Config.Later. del are
// the steps that remove objects. It returns those of them that need not wait.
func (e *Engine) resetClients(flows []conntrack.Flow, del []plan.Op) ([]plan.Op, error) {
	if len(flows) == 0 {
		return del, nil
	}
	if e.cfg.Later == nil {
		return del, errors.Join(e.cfg.Flows.TCP().ResetClients(flows), forgetResets(e.cfg.Flows, flows))
	}
	r := &reset{flows: flows}
	del = r.keep(del, e.resets)
	e.resets = append(e.resets, r)
	e.cfg.Later(func() error {
		err := e.cfg.Flows.TCP().ResetClients(flows)
		e.mu.Lock()
		defer e.mu.Unlock()
		return errors.Join(err, forgetResets(e.cfg.Flows, flows), r.finish(e))
	})
	return del, nil
}

// keep keeps the virtual addresses of the clients' connections that the steps or the
// end of earlier resets would remove. It returns the other steps.
func (r *reset) keep(del []plan.Op, earlier resets) []plan.Op {
	addresses, links := map[netip.Addr]bool{}, map[string]bool{}
	for _, f := range r.flows {
		addresses[f.Host.Addr()] = true
	}
	for _, op := range del {
		for _, end := range plan.Ends(op.Object) {
			links[end] = true
		}
	}
	needs := func(o plan.Object) bool {
		switch o := o.(type) {
		case plan.VirtualAddress:
			return addresses[o.Addr] && !plan.DependsOn(o, links)
		case plan.LocalRoute:
			return addresses[o.Addr]
		}
		return false
	}
	for _, o := range earlier.addTo(nil) {
		if needs(o) {
			r.kept = append(r.kept, o)
		}
	}
	return slices.DeleteFunc(slices.Clone(del), func(op plan.Op) bool {
		if needs(op.Object) {
			r.kept = append(r.kept, op.Object)
			return true
		}
		return false
	})
}

// forgetResets deletes the conntrack entries of resets. Conntrack records resets as
// connections that the host opened. A new connection from the same port would match
// them for some seconds and be refused.
func forgetResets(in Flows, flows []conntrack.Flow) error {
	ended := endsOf(flows)
	_, err := in.Conntrack().Flush(func(f conntrack.Flow) bool {
		return f.Proto == model.TCP && (ended[conntrack.Ends{Client: f.Host, Host: f.Client}] || ended[f.Ends()] &&
			f.Target == f.Host)
	})
	return err
}

// finish removes the virtual addresses that only r needs. It does nothing if TearDown
// has removed them.
func (r *reset) finish(e *Engine) error {
	if !slices.Contains(e.resets, r) {
		return nil
	}
	e.resets = slices.DeleteFunc(e.resets, func(other *reset) bool { return other == r })
	if len(r.kept) == 0 {
		return nil
	}
	record, err := e.load()
	if err != nil {
		return err
	}
	t, err := e.target(record.Applied, record)
	if err != nil {
		return err
	}
	defer e.cfg.Kernel.Release()
	var del []plan.Op
	for _, o := range r.kept {
		if !contains(t.plan, o) {
			del = append(del, plan.Op{Object: o, Del: true})
		}
	}
	known := e.applied != nil
	e.applied = slices.DeleteFunc(slices.Clone(e.applied), func(o plan.Object) bool {
		return slices.ContainsFunc(del, func(op plan.Op) bool { return op.Object.Key() == o.Key() })
	})
	if err = e.carryOut(nil, del); err != nil || !known {
		e.applied = nil
		return err
	}
	return e.forget(&record, e.applied, true)
}
