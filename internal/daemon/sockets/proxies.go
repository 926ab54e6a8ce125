package sockets

import (
	"context"
	"errors"
	"sync/atomic"

	"fairlead/internal/engine"
	"fairlead/internal/model"
	"fairlead/internal/proxy"
)

// Proxies are the proxies of an engine, one after the other.
type Proxies struct {
	cfg    Config
	newest atomic.Pointer[Proxy]
}

// NewProxies returns the proxies of an engine that has none yet.
func NewProxies(cfg Config) *Proxies { return &Proxies{cfg: cfg} }

// Start is engine.Config.StartProxy. It does not wait.
func (p *Proxies) Start(context.Context) (engine.Proxy, error) {
	made := New(p.cfg)
	p.newest.Store(made)
	return made, nil
}

// Finder returns engine.Config.FindProxy, which waits for the proxy; nil if proxies end with their engine.
func (p *Proxies) Finder() func(context.Context) (engine.Keeper, error) {
	if p.cfg.Find == nil {
		return nil
	}
	return func(ctx context.Context) (engine.Keeper, error) {
		found, err := p.cfg.Find(ctx)
		if err != nil || found == nil {
			return nil, err
		}
		made, err := Adopt(ctx, found, p.cfg)
		if err != nil {
			return nil, err
		}
		p.newest.Store(made)
		return made, nil
	}
}

// Do calls a step, and repeats it while it needs ports that the proxy has not opened yet. If the step has changed the
// ports, Do returns when the proxy has them. It waits for the proxy, at most ten seconds each time.
func (p *Proxies) Do(ctx context.Context, step func() error) error {
	before, asked := p.state()
	if err := p.Repeat(ctx, step); err != nil {
		return err
	}
	if now, number := p.state(); now != nil && (now != before || number != asked) {
		return now.Await(ctx)
	}
	return nil
}

// Repeat is Do for callers that do not wait for ports that the step closes. If the step ends without the ports that it
// has asked for, e.g. because their sandbox has ended meanwhile, they are closed again.
func (p *Proxies) Repeat(ctx context.Context, step func() error) error {
	var asked <-chan struct{}
	err := Repeat(ctx, func() error {
		err := step()
		if unopened, ok := errors.AsType[*engine.UnopenedError](err); ok {
			asked = unopened.Done
		}
		return err
	})
	if newest := p.newest.Load(); newest != nil && newest.Discard(asked) {
		_ = newest.Await(ctx) // the ports are closed later if the proxy does not answer
	}
	return err
}

// state returns the newest proxy and the number of what was set last.
func (p *Proxies) state() (*Proxy, uint64) {
	newest := p.newest.Load()
	if newest == nil {
		return nil, 0
	}
	return newest, newest.Asked()
}

// Repeat calls a step, and repeats it while it needs ports that the proxy has not opened yet.
func Repeat(ctx context.Context, step func() error) error {
	for {
		err := step()
		var unopened *engine.UnopenedError
		if !errors.As(err, &unopened) {
			return err
		}
		if err := unopened.Wait(ctx); err != nil {
			return err
		}
	}
}

// AreRefused reports whether a step has failed because ports cannot be opened, for example because another process has
// them.
func AreRefused(err error) bool {
	return errors.As(err, new(*model.PortTakenError)) || errors.As(err, new(*proxy.BindError))
}

// Final returns the error of a second state that was tried after a first one. If it only needs ports, Final returns that
// of the first one, which has closed them: a repeated step would meet it again, for ever.
func Final(second, first error) error {
	if AreUnopened(second) {
		return first
	}
	return second
}

// AreUnopened reports whether a step has failed because it needs ports that the proxy has not opened yet.
func AreUnopened(err error) bool {
	var unopened *engine.UnopenedError
	return errors.As(err, &unopened)
}
