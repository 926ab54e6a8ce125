package daemon

import (
	"fmt"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/daemon/external"
	"fairlead/internal/engine"
	"fairlead/internal/model"
)

// An external endpoint is an attachment of a container engine, e.g. Docker. The
// engine reports when the sandbox starts and ends, moves the link into it, and sets
// its addresses and routes. The engine reserves the endpoint with its addresses
// first (Reserve), joins it when a sandbox will exist (Join), and detaches it at the
// end (Leave, Detach).

// externals handles the requests of container engines for external endpoints.
type externals struct {
	*state
	sandboxes *sandboxes
	applier   *applier
}

// Reserve adds an external endpoint without a sandbox, and returns the configuration
// that its link must get in the sandbox. A repeated call changes nothing. Returns a
// Fault with code Conflict if an attachment of another origin has the name, NotFound
// if the network does not exist, and Invalid if the endpoint does not fit the network.
func (d *Daemon) Reserve(a model.Attachment) (engine.SandboxConfig, error) {
	return d.externals.reserve(a)
}

// Join creates the link of an external endpoint for the sandbox at path, which need
// not exist yet. It returns the configuration that the link must get in the sandbox.
// Returns a Fault with code NotFound if the endpoint was not reserved.
func (d *Daemon) Join(name, path string) (model.Endpoint, engine.SandboxConfig, error) {
	return d.externals.join(name, path)
}

// Leave removes the link and the publishes of an external endpoint, and keeps its
// addresses. It is not an error if there is none.
func (d *Daemon) Leave(name string) error {
	return d.step(d.life, func() error { return d.externals.leave(name) })
}

// Expose sets the publishes of an external endpoint, and replaces those that the
// engine set before. A repeated call changes nothing. Returns an error that wraps
// *model.PortTakenError if a host port is in use: its owner can then be displaced
// (Displace). Returns a Fault with code NotFound if the endpoint has not joined a
// sandbox, unless publishes is empty.
func (d *Daemon) Expose(name string, publishes []model.Publish) error {
	return d.step(d.life, func() error { return d.externals.expose(name, publishes) })
}

// RemoveDead removes the external endpoints whose sandboxes have ended.
func (d *Daemon) RemoveDead() { d.applier.verify(func(*watchedSandbox) bool { return false }) }

// Displace removes an external endpoint because another one needs its resources,
// unless the endpoint is alive, or was joined during this process's lifetime and is
// still starting. It reports whether the endpoint no longer exists. If it reports true
// with an error, the endpoint is removed from the desired state but not from the host.
func (d *Daemon) Displace(name string) (gone bool, err error) {
	err = d.step(d.life, func() (err error) {
		if gone { // the step is repeated
			return d.applier.settle(d.desired)
		}
		gone, err = d.externals.displace(name)
		return err
	})
	return gone, err
}

// reserve implements Daemon.Reserve.
func (x *externals) reserve(a model.Attachment) (engine.SandboxConfig, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if have, known := x.desired.Attachment(a.Name); known && have.Origin != a.Origin {
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
	return in, x.save(x.desired.WithAttachment(a))
}

// join implements Daemon.Join.
func (x *externals) join(name, path string) (e model.Endpoint, in engine.SandboxConfig, err error) {
	ofDevice := false
	err = x.step(x.life, func() (err error) {
		a, known := x.desired.Attachment(name)
		if !known {
			return api.Faultf(api.NotFound, "join %s: it was not reserved", name)
		}
		if ofDevice = x.usesDevice(a); !ofDevice {
			e, in, err = x.joinLink(a, path)
		}
		return err
	})
	if ofDevice {
		return x.joinDevice(name, path)
	}
	return e, in, err
}

// joinLink is one attempt to join an external endpoint with a link that the engine moves.
func (x *externals) joinLink(a model.Attachment, path string) (model.Endpoint, engine.SandboxConfig, error) {
	name := a.Name
	a.Sandbox = path
	in, err := x.config(a)
	if err == nil {
		err = x.applier.settle(x.desired.WithAttachment(a))
	}
	if err != nil {
		return model.Endpoint{}, in, fmt.Errorf("join %s to %s: %w", name, a.Network, err)
	}
	x.sandboxes.external.Await(name, true)
	x.cfg.Log.Info("joined", "attachment", name, "network", a.Network, "sandbox", path)
	e, _ := x.full.Endpoint(name)
	return e, in, nil
}

// leave implements Daemon.Leave.
func (x *externals) leave(name string) error {
	a, known := x.desired.Attachment(name)
	if !known || a.Sandbox == "" && !a.Keep {
		return nil
	}
	if x.usesDevice(a) {
		a = external.Reserved(a)
	}
	next := x.desired.ReplacePublishes(name, func(model.Publish) bool { return true }, nil)
	a.Sandbox, a.Namespace = "", ""
	x.sandboxes.external.Await(name, true)
	if err := x.applier.settle(next.WithAttachment(a)); err != nil {
		return fmt.Errorf("leave %s: %w", name, err)
	}
	x.cfg.Log.Info("left", "attachment", name, "network", a.Network)
	return nil
}

// expose implements Daemon.Expose.
func (x *externals) expose(name string, publishes []model.Publish) error {
	a, known := x.desired.Attachment(name)
	if !known || a.Sandbox == "" {
		if len(publishes) == 0 {
			return nil
		}
		return api.Faultf(api.NotFound, "publish ports of %s: it has not joined a sandbox", name)
	}
	next := x.desired.SetPublishes(name, a.Origin, publishes)
	if slices.EqualFunc(next.Publishes, x.desired.Publishes, model.Publish.Equal) {
		return nil
	}
	for _, p := range slices.Concat(x.desired.PublishesOf(name), next.PublishesOf(name)) {
		if p.Origin == a.Origin {
			delete(x.problems, p.String())
		}
	}
	if err := x.applier.settle(next); err != nil {
		return fmt.Errorf("publish ports of %s: %w", name, err)
	}
	x.cfg.Log.Info("publishes changed", "attachment", name, "publishes", len(publishes))
	return nil
}

// config returns the configuration of an external endpoint's link in its sandbox.
func (x *externals) config(a model.Attachment) (engine.SandboxConfig, error) {
	n, ok := model.State{Networks: x.desired.Networks}.Network(a.Network)
	if !ok {
		return engine.SandboxConfig{}, api.Faultf(api.NotFound, "there is no network %q", a.Network)
	}
	alone := model.State{Networks: []model.Network{n}, Endpoints: []model.Endpoint{a.Leased()}}
	if err := alone.Validate(); err != nil {
		return engine.SandboxConfig{}, &api.Fault{Code: api.Invalid, Err: err}
	}
	return x.engine.SandboxConfig(n, alone.Endpoints[0])
}
