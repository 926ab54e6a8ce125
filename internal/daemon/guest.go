package daemon

import (
	"fmt"
	"slices"

	"fairlead/internal/driver"
	"fairlead/internal/model"
	"fairlead/internal/paths"
)

// A guest is an attachment of another engine's, e.g. Docker's, which says when
// its sandboxes come and go, takes the end of the link into the sandbox itself,
// and gives it its addresses and routes. It is reserved with its addresses
// first, joined when there will be a sandbox, and detached at last.

// Reserve notes a guest without a sandbox, and returns what its link will have
// there. The same again is harmless.
func (d *Daemon) Reserve(a model.Attachment) (driver.Interior, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if have, known := d.attachment(a.Name); known && have.Origin != a.Origin {
		return driver.Interior{}, fault(Conflict, "reserve %s: there is an attachment of that name, which is not %s's", a.Name, a.Origin)
	}
	a.Sandbox, a.Namespace = "", ""
	joined := a
	joined.Sandbox = "/" + a.Name // any will do to see what it will be like
	in, err := d.interior(joined)
	if err != nil {
		return in, fmt.Errorf("reserve %s: %w", a.Name, err)
	}
	return in, d.save(with(d.wishes, a))
}

// Join makes the link of a guest for the sandbox at the path, where there may
// be none yet, and returns what the link has to get there.
func (d *Daemon) Join(name, path string) (model.Endpoint, driver.Interior, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, known := d.attachment(name)
	if !known {
		return model.Endpoint{}, driver.Interior{}, fault(NotFound, "join %s: it was not reserved", name)
	}
	a.Sandbox = path
	in, err := d.interior(a)
	if err == nil {
		err = d.settle(with(d.wishes, a))
	}
	if err != nil {
		return model.Endpoint{}, in, fmt.Errorf("join %s to %s: %w", name, a.Network, err)
	}
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
	if !known || a.Sandbox == "" {
		return nil
	}
	next := d.wishes
	next.Publishes = slices.DeleteFunc(slices.Clone(next.Publishes), func(p model.Publish) bool { return p.Endpoint == name })
	a.Sandbox = ""
	if err := d.settle(with(next, a)); err != nil {
		return fmt.Errorf("leave %s: %w", name, err)
	}
	d.cfg.Log.Info("left", "attachment", name, "network", a.Network)
	return nil
}

// interior works out what a guest's link has in its sandbox.
func (d *Daemon) interior(a model.Attachment) (driver.Interior, error) {
	n, ok := model.State{Networks: d.wishes.Networks}.Network(a.Network)
	if !ok {
		return driver.Interior{}, fault(NotFound, "there is no network %q", a.Network)
	}
	by, ok := paths.Driver(n.Driver)
	if !ok {
		return driver.Interior{}, fault(Invalid, "network %s: there is no driver %q", n.Name, n.Driver)
	}
	alone := model.State{Networks: []model.Network{n}, Endpoints: []model.Endpoint{a.Leased()}}
	if err := alone.Validate(); err != nil {
		return driver.Interior{}, &Fault{Invalid, err}
	}
	full, err := d.engine.Complete(alone)
	if err != nil {
		return driver.Interior{}, err
	}
	return driver.Inside(by, full.Networks[0], full.Endpoints[0]), nil
}
