package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
	"fairlead/internal/store"
)

// steps sorts the steps of a diff by who takes them.
type steps struct {
	set, del, nft, userspace []plan.Op
}

func sortSteps(ops []plan.Op) steps {
	var s steps
	for _, op := range ops {
		switch op.Object.(type) {
		case plan.Table, plan.Mapping, plan.Member:
			s.nft = append(s.nft, op)
		case plan.Listener, plan.Reservation:
			s.userspace = append(s.userspace, op)
		default:
			if op.Del {
				s.del = append(s.del, op)
			} else {
				s.set = append(s.set, op)
			}
		}
	}
	return s
}

// apply leads the host from have to want. An error means that have is what
// the host holds again, unless taking back failed too, which it says.
func (e *Engine) apply(ctx context.Context, record *store.Record, have, want plan.Plan) error {
	s := sortSteps(plan.Diff(have, want))
	defer e.cfg.Kernel.Release()
	if err := e.remember(record, s.set); err != nil {
		return err
	}
	undo, err := e.make(ctx, record, have, want, s)
	if err != nil {
		slices.Reverse(undo)
		for _, back := range undo {
			err = errors.Join(err, back())
		}
		e.applied = nil
		return err
	}
	e.applied = want
	err = errors.Join(e.remove(record, s.del), e.setProxy(ctx, s.userspace, want), e.flushFlows(s.nft))
	if err != nil {
		e.applied = nil
	}
	return errors.Join(err, e.forget(record, s.del))
}

// make takes every step that adds, and returns how to take them back.
func (e *Engine) make(ctx context.Context, record *store.Record, have, want plan.Plan, s steps) (undo []func() error, err error) {
	undo = append(undo, func() error { return e.setProxy(ctx, s.userspace, have) })
	if err := e.setProxy(ctx, s.userspace, slices.Concat(want, leftOver(s.userspace))); err != nil {
		return undo, err
	}
	for _, op := range s.set {
		undo = append(undo, func() error { return e.takeBack(record, op) })
		if err := e.cfg.Kernel.Set(op.Object); err != nil {
			return undo, err
		}
	}
	if len(s.nft) > 0 {
		if err := e.cfg.Kernel.Transact(s.nft); err != nil {
			return undo, err
		}
	}
	return undo, nil
}

// takeBack puts what a step replaced back, or removes what it made.
func (e *Engine) takeBack(record *store.Record, op plan.Op) error {
	if s, ok := op.Object.(plan.Sysctl); ok {
		return e.restore(record, s)
	}
	if op.Old != nil {
		return e.cfg.Kernel.Set(op.Old)
	}
	return e.cfg.Kernel.Del(op.Object)
}

// remove takes the steps that take away; it goes on over errors.
func (e *Engine) remove(record *store.Record, ops []plan.Op) error {
	var errs []error
	for _, op := range ops {
		if s, ok := op.Object.(plan.Sysctl); ok {
			errs = append(errs, e.restore(record, s))
		} else {
			errs = append(errs, e.cfg.Kernel.Del(op.Object))
		}
	}
	return errors.Join(errs...)
}

// leftOver returns the objects that the steps take away.
func leftOver(ops []plan.Op) plan.Plan {
	var p plan.Plan
	for _, op := range ops {
		if op.Del {
			p = append(p, op.Object)
		}
	}
	return p
}

// setProxy gives the proxy the sockets of the plan, when the steps change
// any, and starts it if there is none.
func (e *Engine) setProxy(ctx context.Context, changes []plan.Op, want plan.Plan) error {
	if len(changes) == 0 {
		return nil
	}
	var cfg proxy.Config
	var held plan.Plan
	for _, o := range want {
		switch o := o.(type) {
		case plan.Listener:
			cfg.Listeners = append(cfg.Listeners, o)
			held = append(held, o)
		case plan.Reservation:
			cfg.Reservations = append(cfg.Reservations, o)
			held = append(held, o)
		}
	}
	if e.proxy == nil {
		if len(held) == 0 {
			return nil
		}
		p, err := e.cfg.StartProxy(ctx)
		if err != nil {
			return fmt.Errorf("start proxy: %w", err)
		}
		e.proxy = p
	}
	if err := e.proxy.Set(ctx, cfg); err != nil {
		return fmt.Errorf("open host ports: %w", err)
	}
	e.userspace = held
	return nil
}

// nameOwner turns a port that could not be bound into an error that names
// the publish and who holds the port.
func (e *Engine) nameOwner(s model.State, err error) error {
	var bind *proxy.BindError
	if !errors.As(err, &bind) || !errors.Is(bind, syscall.EADDRINUSE) {
		return err
	}
	owner, lookup := e.cfg.Kernel.PortOwner(bind.Proto, bind.Addr)
	for _, p := range s.Publishes {
		at := int(bind.Addr.Port())
		if p.Proto == bind.Proto && int(p.HostPorts.First) <= at && at <= int(p.HostPorts.Last) {
			return errors.Join(&model.PortTakenError{Publish: p, Owner: owner.String()}, lookup)
		}
	}
	return err
}
