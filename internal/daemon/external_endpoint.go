package daemon

import (
	"fmt"
	"slices"

	"fairlead/internal/engine"
	"fairlead/internal/model"
)

// A guest is an attachment of another engine's, e.g. Docker's, which says when
// its sandboxes come and go, takes the end of the link into the sandbox itself,
// and gives it its addresses and routes. It is reserved with its addresses
// first, joined when there will be a sandbox, and detached at last.

// Reserve notes a guest without a sandbox, and returns what its link will have
// there. The same again is harmless.
func (d *Daemon) Reserve(a model.Attachment) (engine.SandboxConfig, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if have, known := d.attachment(a.Name); known && have.Origin != a.Origin {
		return engine.SandboxConfig{}, fault(Conflict, "reserve %s: there is an attachment of that name, which is not %s's", a.Name, a.Origin)
	}
	a.Sandbox, a.Namespace = "", ""
	joined := a
	joined.Sandbox = "/" + a.Name // any will do to see what it will be like
	in, err := d.config(joined)
	if err != nil {
		return in, fmt.Errorf("reserve %s: %w", a.Name, err)
	}
	return in, d.save(with(d.desired, a))
}

// Join makes the link of a guest for the sandbox at the path, where there may
// be none yet, and returns what the link has to get there.
func (d *Daemon) Join(name, path string) (model.Endpoint, engine.SandboxConfig, error) {
	d.mu.Lock()
	a, known := d.attachment(name)
	if known && d.lends(a) {
		d.mu.Unlock()
		return d.offer(name, path)
	}
	defer d.mu.Unlock()
	if !known {
		return model.Endpoint{}, engine.SandboxConfig{}, fault(NotFound, "join %s: it was not reserved", name)
	}
	a.Sandbox = path
	in, err := d.config(a)
	if err == nil {
		err = d.settle(with(d.desired, a))
	}
	if err != nil {
		return model.Endpoint{}, in, fmt.Errorf("join %s to %s: %w", name, a.Network, err)
	}
	d.awaitExternal(name, true)
	d.cfg.Log.Info("joined", "attachment", name, "network", a.Network, "sandbox", path)
	e, _ := d.full.Endpoint(name)
	return e, in, nil
}

// Leave takes a guest's link and publishes away, and keeps its addresses. That
// there is none is fine.
func (d *Daemon) Leave(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, known := d.attachment(name)
	if !known || a.Sandbox == "" && !a.Keep {
		return nil
	}
	if d.lends(a) {
		a = unlent(a)
	}
	next := d.desired
	next.Publishes = slices.DeleteFunc(slices.Clone(next.Publishes), func(p model.Publish) bool { return p.Endpoint == name })
	a.Sandbox, a.Namespace = "", ""
	d.awaitExternal(name, true)
	if err := d.settle(with(next, a)); err != nil {
		return fmt.Errorf("leave %s: %w", name, err)
	}
	d.cfg.Log.Info("left", "attachment", name, "network", a.Network)
	return nil
}

// Expose makes these the publishes of a guest, in place of those that its engine
// asked for before. The same again is harmless, and so is none of a guest that
// is not there.
func (d *Daemon) Expose(name string, publishes []model.Publish) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, known := d.attachment(name)
	if !known || a.Sandbox == "" {
		if len(publishes) == 0 {
			return nil
		}
		return fault(NotFound, "publish ports of %s: it has not joined a sandbox", name)
	}
	want := slices.Clone(publishes)
	for i := range want {
		want[i].Endpoint, want[i].Origin = name, a.Origin
	}
	next := d.desired
	var have []model.Publish
	next.Publishes = slices.DeleteFunc(slices.Clone(next.Publishes), func(p model.Publish) bool {
		theirs := p.Endpoint == name && p.Origin == a.Origin
		if theirs {
			have = append(have, p)
		}
		return theirs
	})
	if slices.EqualFunc(have, want, model.Publish.Equal) {
		return nil
	}
	next.Publishes = append(next.Publishes, want...)
	for _, p := range slices.Concat(have, want) {
		delete(d.problems, p.String())
	}
	if err := d.settle(next); err != nil {
		return fmt.Errorf("publish ports of %s: %w", name, err)
	}
	d.cfg.Log.Info("publishes changed", "attachment", name, "publishes", len(want))
	return nil
}

// config works out what a guest's link has in its sandbox.
func (d *Daemon) config(a model.Attachment) (engine.SandboxConfig, error) {
	n, ok := model.State{Networks: d.desired.Networks}.Network(a.Network)
	if !ok {
		return engine.SandboxConfig{}, fault(NotFound, "there is no network %q", a.Network)
	}
	alone := model.State{Networks: []model.Network{n}, Endpoints: []model.Endpoint{a.Leased()}}
	if err := alone.Validate(); err != nil {
		return engine.SandboxConfig{}, &Fault{Invalid, err}
	}
	return d.engine.SandboxConfig(n, alone.Endpoints[0])
}
