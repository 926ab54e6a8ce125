package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
)

// Keeper is a proxy that outlives its engine; *proxy.Proxy is one if proxy.Keep
// started it.
type Keeper interface {
	Proxy
	// CurrentConfig returns the proxy's listeners and reservations.
	CurrentConfig(context.Context) (proxy.Config, error)
}

// AdoptProxy takes over the proxy that an earlier engine left running, with its
// open sockets. The first other method that needs the proxy calls it otherwise. If it
// fails, it is not repeated: the ports of that proxy stay as they are.
func (e *Engine) AdoptProxy(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.adoptProxy(ctx)
}

func (e *Engine) adoptProxy(ctx context.Context) error {
	if e.adopted || e.cfg.FindProxy == nil {
		return nil
	}
	e.adopted = true
	p, err := e.cfg.FindProxy(ctx)
	if err != nil {
		return fmt.Errorf("adopt the proxy: %w", err)
	}
	if p != nil {
		inUse, err := p.CurrentConfig(ctx)
		if err != nil {
			return fmt.Errorf("adopt the proxy: %w", err)
		}
		e.proxy, e.userspace = p, planOf(inUse)
	}
	return nil
}

// planOf returns the plan objects of a proxy's configuration.
func planOf(inUse proxy.Config) plan.Plan {
	var p plan.Plan
	for _, l := range inUse.Listeners {
		p = append(p, l)
	}
	for _, r := range inUse.Reservations {
		p = append(p, r)
	}
	return p
}

// HealProxy restarts a proxy that has ended, with the same sockets, and reports
// whether it did. It leaves out ports that another program uses now and returns
// them as the error; Heal tries them again. After an UnopenedError, HealProxy must be
// repeated. If the next proxy has ended, too, it returns an error and starts none: the
// caller waits before it calls HealProxy again.
func (e *Engine) HealProxy(ctx context.Context) (healed bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	want, before := e.userspace, e.proxy
	switch e.dropDeadProxy(ctx); {
	case e.lost != nil && e.proxy != before:
		return false, errors.New("open host ports: the next proxy has ended, too")
	case e.lost != nil:
		want = e.lost
	case e.proxy != nil || len(want) == 0:
		return false, nil
	}
	e.lost = nil
	for {
		refused := e.setProxy(ctx, added(want), want)
		if refused == nil {
			break
		}
		e.applied, err = nil, errors.Join(err, refused)
		var unopened *UnopenedError
		if errors.As(refused, &unopened) {
			e.lost = want
			return false, err
		}
		var bind *proxy.BindError
		if !errors.As(refused, &bind) {
			break
		}
		left := withoutPort(want, bind)
		if len(left) == len(want) || len(left) == 0 {
			break
		}
		want = left
	}
	return e.proxy != nil, err
}

// closeLost closes the sockets that HealProxy waits for if the plan has none: the proxy may have opened them already.
func (e *Engine) closeLost(ctx context.Context, want plan.Plan) error {
	open := func(o plan.Object) bool { return plan.GroupOf(o) == plan.GroupProxy }
	if e.lost == nil || slices.ContainsFunc(want, open) {
		return nil
	}
	if e.dropDeadProxy(ctx); e.proxy != nil {
		if err := e.proxy.Set(ctx, proxy.Config{}); err != nil {
			return fmt.Errorf("close host ports: %w", err)
		}
	}
	e.lost = nil
	return nil
}

// added returns the steps that add every object of the plan.
func added(p plan.Plan) []plan.Op {
	ops := make([]plan.Op, 0, len(p))
	for _, o := range p {
		ops = append(ops, plan.Op{Object: o})
	}
	return ops
}

// withoutPort returns a copy of the plan without the objects that need the port
// that could not be bound.
func withoutPort(p plan.Plan, taken *proxy.BindError) plan.Plan {
	return slices.DeleteFunc(slices.Clone(p), func(o plan.Object) bool {
		return holds(o, taken.Proto, model.Port(taken.Addr.Port()))
	})
}
