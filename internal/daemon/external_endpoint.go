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

// Reserve adds an external endpoint without a sandbox, and returns the configuration
// that its link must get in the sandbox. A repeated call changes nothing. Returns a
// Fault with code Conflict if an attachment of another origin has the name, NotFound
// if the network does not exist, and Invalid if the endpoint does not fit the network.
func (d *Daemon) Reserve(a model.Attachment) (engine.SandboxConfig, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if have, known := d.desired.Attachment(a.Name); known && have.Origin != a.Origin {
		return engine.SandboxConfig{}, api.Faultf(api.Conflict,
			"reserve %s: an attachment with this name exists, and %s did not create it", a.Name, a.Origin)
	}
	a.Sandbox, a.Namespace = "", ""
	joined := a
	joined.Sandbox = "/" + a.Name // a placeholder, to compute the configuration
	in, err := d.config(joined)
	if err != nil {
		return in, fmt.Errorf("reserve %s: %w", a.Name, err)
	}
	return in, d.save(d.desired.WithAttachment(a))
}

// Join creates the link of an external endpoint for the sandbox at path, which need
// not exist yet. It returns the configuration that the link must get in the sandbox.
// Returns a Fault with code NotFound if the endpoint was not reserved.
func (d *Daemon) Join(name, path string) (model.Endpoint, engine.SandboxConfig, error) {
	d.mu.Lock()
	a, known := d.desired.Attachment(name)
	if known && d.usesDevice(a) {
		d.mu.Unlock()
		return d.joinDevice(name, path)
	}
	defer d.mu.Unlock()
	if !known {
		return model.Endpoint{}, engine.SandboxConfig{}, api.Faultf(api.NotFound, "join %s: it was not reserved", name)
	}
	a.Sandbox = path
	in, err := d.config(a)
	if err == nil {
		err = d.settle(d.desired.WithAttachment(a))
	}
	if err != nil {
		return model.Endpoint{}, in, fmt.Errorf("join %s to %s: %w", name, a.Network, err)
	}
	d.sandboxes.external.Await(name, true)
	d.cfg.Log.Info("joined", "attachment", name, "network", a.Network, "sandbox", path)
	e, _ := d.full.Endpoint(name)
	return e, in, nil
}

// Leave removes the link and the publishes of an external endpoint, and keeps its
// addresses. It is not an error if there is none.
func (d *Daemon) Leave(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, known := d.desired.Attachment(name)
	if !known || a.Sandbox == "" && !a.Keep {
		return nil
	}
	if d.usesDevice(a) {
		a = external.Reserved(a)
	}
	next := d.desired.ReplacePublishes(name, func(model.Publish) bool { return true }, nil)
	a.Sandbox, a.Namespace = "", ""
	d.sandboxes.external.Await(name, true)
	if err := d.settle(next.WithAttachment(a)); err != nil {
		return fmt.Errorf("leave %s: %w", name, err)
	}
	d.cfg.Log.Info("left", "attachment", name, "network", a.Network)
	return nil
}

// Expose sets the publishes of an external endpoint, and replaces those that the
// engine set before. A repeated call changes nothing. Returns an error that wraps
// *model.PortTakenError if a host port is in use: its owner can then be displaced
// (Displace). Returns a Fault with code NotFound if the endpoint has not joined a
// sandbox, unless publishes is empty.
func (d *Daemon) Expose(name string, publishes []model.Publish) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, known := d.desired.Attachment(name)
	if !known || a.Sandbox == "" {
		if len(publishes) == 0 {
			return nil
		}
		return api.Faultf(api.NotFound, "publish ports of %s: it has not joined a sandbox", name)
	}
	next := d.desired.SetPublishes(name, a.Origin, publishes)
	if slices.EqualFunc(next.Publishes, d.desired.Publishes, model.Publish.Equal) {
		return nil
	}
	for _, p := range slices.Concat(d.desired.PublishesOf(name), next.PublishesOf(name)) {
		if p.Origin == a.Origin {
			delete(d.problems, p.String())
		}
	}
	if err := d.settle(next); err != nil {
		return fmt.Errorf("publish ports of %s: %w", name, err)
	}
	d.cfg.Log.Info("publishes changed", "attachment", name, "publishes", len(publishes))
	return nil
}

// config returns the configuration of an external endpoint's link in its sandbox.
func (d *Daemon) config(a model.Attachment) (engine.SandboxConfig, error) {
	n, ok := model.State{Networks: d.desired.Networks}.Network(a.Network)
	if !ok {
		return engine.SandboxConfig{}, api.Faultf(api.NotFound, "there is no network %q", a.Network)
	}
	alone := model.State{Networks: []model.Network{n}, Endpoints: []model.Endpoint{a.Leased()}}
	if err := alone.Validate(); err != nil {
		return engine.SandboxConfig{}, &api.Fault{Code: api.Invalid, Err: err}
	}
	return d.engine.SandboxConfig(n, alone.Endpoints[0])
}
