package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
	"fairlead/internal/store"
)

// steps sorts the steps of a diff by who carries them out and when.
type steps struct {
	// first deletes links whose names, devices or addresses new links need.
	first    []plan.Op
	set, del []plan.Op
	// unserved removes virtual services of IPVS. Their clients' connections end
	// while the virtual addresses still exist.
	unserved       []plan.Op
	nft, userspace []plan.Op
	// ebpf changes the entries of the eBPF table.
	ebpf []plan.Op
}

func sortSteps(ops []plan.Op) steps {
	var s steps
	wanted := map[string]bool{}
	for _, op := range ops {
		if op.Del {
			continue
		}
		for _, claim := range plan.Claims(op.Object) {
			wanted[claim] = true
		}
	}
	for _, op := range ops {
		switch group := plan.GroupOf(op.Object); {
		case group.IsTable():
			s.nft = append(s.nft, op)
		case group == plan.GroupProxy:
			s.userspace = append(s.userspace, op)
		case group == plan.GroupEBPF:
			s.ebpf = append(s.ebpf, op)
		case !op.Del:
			s.set = append(s.set, op)
		case isIPVS(op.Object):
			s.unserved = append(s.unserved, op)
		case slices.ContainsFunc(plan.Claims(op.Object), func(claim string) bool { return wanted[claim] }):
			s.first = append(s.first, op)
		default:
			s.del = append(s.del, op)
		}
	}
	return s
}

// apply changes the host from have to want. If made is false, the changes were
// undone: the host is in its earlier state, except for what the error names.
func (e *Engine) apply(ctx context.Context, record *store.Record, have, want plan.Plan) (made bool, err error) {
	s := sortSteps(plan.Diff(have, want))
	byAccount := e.applied != nil
	defer e.cfg.Kernel.Release()
	if err := e.remember(record, s.set); err != nil {
		return false, err
	}
	cut, unread := e.cutFlows(s)
	if err := e.make(ctx, record, have, want, s); err != nil {
		var unopened *UnopenedError
		if !errors.As(err, &unopened) { // then nothing has changed
			e.applied = nil
		}
		return false, err
	}
	unserved := e.carryOut(record, s.unserved)
	ended, unflushed := e.flushFlows(s.nft, cut)
	del, unreset := e.resetClients(ended, s.del)
	s.del, want = del, e.resets.addTo(want)
	e.applied = want
	err = errors.Join(unread, unserved, unflushed, unreset, e.carryOut(record, s.del),
		e.setProxy(ctx, s.userspace, want))
	if err != nil {
		e.applied = nil
	}
	if byAccount && err == nil && !slices.ContainsFunc(slices.Concat(s.first, s.del), forgettable) {
		return true, nil
	}
	return true, errors.Join(err, e.forget(record, want, err == nil))
}

// forgettable reports whether the step removes something that the record contains.
func forgettable(op plan.Op) bool {
	_, setting := op.Object.(plan.Sysctl)
	_, virtual := op.Object.(plan.VirtualAddress)
	_, within := inside(op.Object)
	return setting || within || virtual
}

// make carries out all steps that add objects. If one fails, it undoes the earlier
// ones.
func (e *Engine) make(ctx context.Context, record *store.Record, have, want plan.Plan, s steps) error {
	done, err := e.attempt(ctx, want, s)
	var unopened *UnopenedError
	if err == nil || errors.As(err, &unopened) {
		return err
	}
	return errors.Join(err, e.undo(record, done), e.reattach(have, s), e.setProxy(ctx, s.userspace, have))
}

// undo undoes steps. Settings are restored from the record, not to the value that
// was observed: only Fairlead's value is taken back.
func (e *Engine) undo(record *store.Record, done []plan.Op) error {
	back := plan.Inverse(done)
	for i, op := range done {
		if s, ok := op.Object.(plan.Sysctl); ok {
			back[len(back)-1-i] = plan.Op{Object: s, Del: true}
		}
	}
	return e.carryOut(record, back)
}

// attempt carries out the steps, and returns those that may have changed the host.
func (e *Engine) attempt(ctx context.Context, want plan.Plan, s steps) (done []plan.Op, err error) {
	if err := e.cfg.Kernel.Sockets().CheckPorts(unreserved(s.ebpf, e.userspace)); err != nil {
		return nil, err
	}
	if err := e.setProxy(ctx, s.userspace, bridging(want, s.userspace)); err != nil {
		return nil, err
	}
	if err := e.closeLost(ctx, want); err != nil { // they are in no step
		return nil, err
	}
	all := slices.Concat(s.first, s.set, s.ebpf, s.nft)
	n, err := e.cfg.Kernel.Apply(all)
	return all[:n], err
}

// unreserved returns the new mappings whose ports the proxy does not reserve, so
// that a socket of another program may use them.
func unreserved(ops []plan.Op, userspace plan.Plan) []plan.EBPFMapping {
	var mappings []plan.EBPFMapping
	for _, op := range ops {
		l, ok := op.Object.(plan.EBPFMapping)
		if !ok || op.Del || op.Old != nil || l.Reserved {
			continue
		}
		if !slices.ContainsFunc(userspace, func(o plan.Object) bool { return holds(o, l.Proto, l.Ports) }) {
			mappings = append(mappings, l)
		}
	}
	return mappings
}

// holds reports whether an object is a socket of the proxy on one of the ports.
func holds(o plan.Object, proto model.Proto, ports model.PortRange) bool {
	switch o := o.(type) {
	case plan.Listener:
		return o.Proto == proto && o.Ports.Overlaps(ports)
	case plan.Reservation:
		return o.Proto == proto && o.Ports.Overlaps(ports)
	}
	return false
}

// reattach restores the objects that depend on links that were deleted and
// restored.
func (e *Engine) reattach(have plan.Plan, s steps) error {
	back := map[string]bool{}
	for _, op := range slices.Concat(s.first, s.set) {
		for _, o := range []plan.Object{op.Old, op.Object} {
			if o == nil || op.Old == nil && !op.Del {
				continue
			}
			for _, end := range plan.Ends(o) {
				back[end] = true
			}
		}
	}
	var again []plan.Op
	for _, o := range have {
		if base := plan.Base(o); base != "" && back[base] {
			again = append(again, plan.Op{Object: o})
		}
	}
	return e.carryOut(nil, again)
}

// carryOut carries out the steps, continues after errors and returns all of them.
// With a record, it restores settings to the values in it.
func (e *Engine) carryOut(record *store.Record, ops []plan.Op) error {
	var errs []error
	for batch := range plan.Batches(ops) {
		if s, ok := batch[0].Object.(plan.Sysctl); ok && record != nil {
			errs = append(errs, e.restore(record, s))
			continue
		}
		_, err := e.cfg.Kernel.Apply(batch)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// bridging returns the sockets that the proxy keeps open between two plans: those
// of both, so that no port is closed meanwhile. A new listener that overlaps an old
// one is a reservation until the old one is closed.
func bridging(want plan.Plan, changes []plan.Op) plan.Plan {
	var going []plan.Listener
	var all plan.Plan
	for _, op := range changes {
		if l, ok := op.Object.(plan.Listener); ok && op.Del {
			going = append(going, l)
		}
		if op.Del {
			all = append(all, op.Object)
		}
	}
	for _, o := range want {
		l, ok := o.(plan.Listener)
		if ok && slices.ContainsFunc(going, l.Overlaps) {
			o = plan.Reservation{Proto: l.Proto, Host: l.Host, Ports: l.Ports}
		}
		all = append(all, o)
	}
	return all
}

// setProxy gives the proxy the sockets of the plan if the steps change any socket
// and the proxy does not already have all of them. It starts the proxy if there is
// none.
func (e *Engine) setProxy(ctx context.Context, changes []plan.Op, want plan.Plan) error {
	if len(changes) == 0 {
		return nil
	}
	var cfg proxy.Config
	var inUse plan.Plan
	for _, o := range want {
		switch o := o.(type) {
		case plan.Listener:
			cfg.Listeners = append(cfg.Listeners, o)
			inUse = append(inUse, o)
		case plan.Reservation:
			cfg.Reservations = append(cfg.Reservations, o)
			inUse = append(inUse, o)
		}
	}
	if slices.Equal(inUse, e.userspace) {
		return nil
	}
	if e.proxy == nil {
		p, err := e.cfg.StartProxy(ctx)
		if err != nil {
			return fmt.Errorf("start proxy: %w", err)
		}
		e.proxy = p
	}
	key, err := e.cfg.Inspector.EBPF().BindKey()
	if err != nil {
		return fmt.Errorf("open host ports: %w", err)
	}
	cfg.BindKey = key
	if err := e.proxy.Set(ctx, cfg); err != nil {
		return fmt.Errorf("open host ports: %w", err)
	}
	e.userspace, e.lost = inUse, nil
	return nil
}
