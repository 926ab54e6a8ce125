// Package endpoints handles the requests of container engines for external endpoints, and those for workloads of the
// host's own network.
//
// An external endpoint is an attachment of a container engine, e.g. Docker. The
// engine reports when the sandbox starts and ends, moves the link into it, and sets
// its addresses and routes. The engine reserves the endpoint with its addresses
// first (Reserve), joins it when a sandbox will exist (Join), and detaches it at the
// end (Leave, and the daemon's Detach).
package endpoints

import (
	"context"
	"fmt"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/daemon/applier"
	"fairlead/internal/daemon/external"
	"fairlead/internal/daemon/state"
	"fairlead/internal/daemon/step"
	"fairlead/internal/daemon/watched"
	"fairlead/internal/engine"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// Config contains what Endpoints needs.
type Config struct {
	State     *state.State
	Steps     *step.Runner
	Sandboxes *watched.Sandboxes
	Applier   *applier.Applier
	Engine    *engine.Engine
	Kernel    engine.Kernel
	// Resolve finds a running sandbox.
	Resolve func(ctx context.Context, text string) (sandbox.Sandbox, error)
}

// Endpoints handles the requests of container engines for external endpoints and workloads. Its exported methods lock
// the mutex of the state, and the others expect that it is locked. It has no state of its own.
type Endpoints struct {
	cfg   Config
	state *state.State
	steps *step.Runner
}

// New returns Endpoints.
func New(cfg Config) *Endpoints { return &Endpoints{cfg: cfg, state: cfg.State, steps: cfg.Steps} }

// Reserve adds an external endpoint without a sandbox, and returns the configuration
// that its link must get in the sandbox. A repeated call changes nothing. Returns a
// Fault with code Conflict if an attachment of another origin has the name, NotFound
// if the network does not exist, and Invalid if the endpoint does not fit the network.
func (x *Endpoints) Reserve(a model.Attachment) (engine.SandboxConfig, error) {
	x.state.Lock()
	defer x.state.Unlock()
	if have, known := x.state.Desired().Attachment(a.Name); known && have.Origin != a.Origin {
		return engine.SandboxConfig{}, api.Faultf(api.Conflict,
			"reserve %s: an attachment with this name exists, and %s did not create it", a.Name, a.Origin)
	}
	a.Sandbox, a.Namespace = "", ""
	joined := a
	joined.Sandbox = "/" + a.Name // a placeholder, to compute the configuration
	in, err := x.config(joined)
	if err != nil {
		return in, fmt.Errorf("reserve %s: %w", a.Name, err)
	}
	return in, x.state.Save(x.state.Desired().WithAttachment(a))
}

// Leave removes the link and the publishes of an external endpoint, and keeps its
// addresses. It is not an error if there is none.
func (x *Endpoints) Leave(name string) error {
	return x.steps.Do(x.state.Life, func() error { return x.leave(name) })
}

// leave is one attempt of Leave.
func (x *Endpoints) leave(name string) error {
	a, known := x.state.Desired().Attachment(name)
	if !known || a.Sandbox == "" && !a.Keep {
		return nil
	}
	if x.usesDevice(a) {
		a = external.Reserved(a)
	}
	next := x.state.Desired().ReplacePublishes(name, func(model.Publish) bool { return true }, nil)
	a.Sandbox, a.Namespace = "", ""
	x.cfg.Sandboxes.External.Await(name, true)
	if err := x.cfg.Applier.Settle(next.WithAttachment(a)); err != nil {
		return fmt.Errorf("leave %s: %w", name, err)
	}
	x.state.Log.Info("left", "attachment", name, "network", a.Network)
	return nil
}

// Expose sets the publishes of an external endpoint, and replaces those that the
// engine set before. A repeated call changes nothing. Returns an error that wraps
// *model.PortTakenError if a host port is in use: its owner can then be displaced
// (Displace). Returns a Fault with code NotFound if the endpoint has not joined a
// sandbox, unless publishes is empty.
func (x *Endpoints) Expose(name string, publishes []model.Publish) error {
	return x.steps.Do(x.state.Life, func() error { return x.expose(name, publishes) })
}

// expose is one attempt of Expose.
func (x *Endpoints) expose(name string, publishes []model.Publish) error {
	a, known := x.state.Desired().Attachment(name)
	if !known || a.Sandbox == "" {
		if len(publishes) == 0 {
			return nil
		}
		return api.Faultf(api.NotFound, "publish ports of %s: it has not joined a sandbox", name)
	}
	next := x.state.Desired().SetPublishes(name, a.Origin, publishes)
	if slices.EqualFunc(next.Publishes, x.state.Desired().Publishes, model.Publish.Equal) {
		return nil
	}
	for _, p := range slices.Concat(x.state.Desired().PublishesOf(name), next.PublishesOf(name)) {
		if p.Origin == a.Origin {
			delete(x.state.Problems, p.String())
		}
	}
	if err := x.cfg.Applier.Settle(next); err != nil {
		return fmt.Errorf("publish ports of %s: %w", name, err)
	}
	x.state.Log.Info("publishes changed", "attachment", name, "publishes", len(publishes))
	return nil
}

// config returns the configuration of an external endpoint's link in its sandbox.
func (x *Endpoints) config(a model.Attachment) (engine.SandboxConfig, error) {
	n, ok := x.state.Desired().Network(a.Network)
	if !ok {
		return engine.SandboxConfig{}, api.Faultf(api.NotFound, "there is no network %q", a.Network)
	}
	alone := model.State{Networks: []model.Network{n}, Endpoints: []model.Endpoint{a.Leased()}}
	if err := alone.Validate(); err != nil {
		return engine.SandboxConfig{}, &api.Fault{Code: api.Invalid, Err: err}
	}
	return x.cfg.Engine.SandboxConfig(n, alone.Endpoints[0])
}

// RemoveDead removes the external endpoints whose sandboxes have ended.
func (x *Endpoints) RemoveDead() { x.cfg.Applier.Verify(func(*watched.Sandbox) bool { return false }) }

// Displace removes an external endpoint because another one needs its resources,
// unless the endpoint is alive, or was joined during this process's lifetime and is
// still starting. It reports whether the endpoint no longer exists. If it reports true
// with an error, the endpoint is removed from the desired state but not from the host.
func (x *Endpoints) Displace(name string) (gone bool, err error) {
	err = x.steps.Do(x.state.Life, func() (err error) {
		if gone { // the step is repeated
			return x.cfg.Applier.Settle(x.state.Desired())
		}
		gone, err = x.displace(name)
		return err
	})
	return gone, err
}

// displace is one attempt of Displace.
func (x *Endpoints) displace(name string) (bool, error) {
	a, known := x.state.Desired().Attachment(name)
	if !known {
		return true, nil
	}
	if !external.Is(a) {
		return false, nil
	}
	var scan external.Scan
	if !x.cfg.Sandboxes.External.Displaceable(a, &scan) {
		return false, nil
	}
	return true, x.cfg.Applier.CleanUp(map[string]bool{a.Ref: true})
}

// usesDevice reports whether the external endpoint's network moves whole devices into
// sandboxes. Then there is no link for the engine to move: the daemon moves the device
// itself and sets its addresses and routes, at once or when the sandbox exists.
func (x *Endpoints) usesDevice(a model.Attachment) bool {
	n, _ := x.state.Desired().Network(a.Network)
	return n.Traits().MovesDevice
}
