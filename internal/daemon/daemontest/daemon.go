// Package daemontest has a daemon without a host for tests of front ends, and the tests that the
// real daemon passes too.
package daemontest

import (
	"fmt"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/engine"
	"fairlead/internal/model"
)

// Daemon is a daemon without a host: it stores what it gets. The zero value is empty.
type Daemon struct {
	// Taken are host ports that another program uses.
	Taken []model.PortRange
	// Dead are endpoints whose containers have ended.
	Dead map[string]bool
	// Config is the configuration of every link in its sandbox.
	Config engine.SandboxConfig
	// Exposed counts the calls of Expose.
	Exposed int

	networks    []model.Network
	attachments []api.View
}

// CreateNetwork adds a network that fits the others, or replaces the one with the same name.
func (d *Daemon) CreateNetwork(n model.Network, _ bool) (api.Result, error) {
	next := model.Desired{Networks: d.networks}.WithNetwork(n).Networks
	if err := (model.State{Networks: next}).Validate(); err != nil {
		return api.Result{}, err
	}
	d.networks = next
	return api.Result{}, nil
}

// RemoveNetwork removes a network.
func (d *Daemon) RemoveNetwork(name string) (api.Result, error) {
	d.networks = slices.DeleteFunc(d.networks, func(n model.Network) bool { return n.Name == name })
	return api.Result{}, nil
}

// Networks returns the networks in the order in which they were created.
func (d *Daemon) Networks() []model.Network { return slices.Clone(d.networks) }

// Attachments returns the endpoints in the order in which they were reserved.
func (d *Daemon) Attachments() []api.View { return slices.Clone(d.attachments) }

// Find returns the stored endpoint, which a test may change, or nil.
func (d *Daemon) Find(name string) *api.View {
	for i := range d.attachments {
		if d.attachments[i].Name == name {
			return &d.attachments[i]
		}
	}
	return nil
}

// Reserve adds an endpoint without a sandbox. A repeated call changes nothing.
func (d *Daemon) Reserve(a model.Attachment) (engine.SandboxConfig, error) {
	if d.Find(a.Name) == nil {
		d.attachments = append(d.attachments, api.View{Attachment: a})
	}
	return d.Config, nil
}

// Join sets the endpoint's sandbox. Returns a Fault with code NotFound if the endpoint was not
// reserved.
func (d *Daemon) Join(name, path string) (model.Endpoint, engine.SandboxConfig, error) {
	v := d.Find(name)
	if v == nil {
		return model.Endpoint{}, d.Config, api.Faultf(api.NotFound, "join %s: it was not reserved", name)
	}
	v.Sandbox = path
	return v.Endpoint, d.Config, nil
}

// Expose replaces the publishes of an endpoint. Returns an error that wraps *model.PortTakenError if
// a host port is in use, and a Fault with code NotFound if the endpoint has not joined a sandbox,
// unless publishes is empty.
func (d *Daemon) Expose(name string, publishes []model.Publish) error {
	d.Exposed++
	v := d.Find(name)
	switch {
	case (v == nil || v.Sandbox == "") && len(publishes) == 0:
		return nil
	case v == nil || v.Sandbox == "":
		return api.Faultf(api.NotFound, "publish ports of %s: it has not joined a sandbox", name)
	}
	if err := d.free(name, publishes); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	v.Publishes = nil
	for _, p := range publishes {
		p.Endpoint = name
		v.Publishes = append(v.Publishes, api.PublishedView{Publish: p})
	}
	return nil
}

// free returns *model.PortTakenError if a program or another endpoint uses a host port.
func (d *Daemon) free(name string, publishes []model.Publish) error {
	for _, p := range publishes {
		if slices.ContainsFunc(d.Taken, p.HostPorts.Overlaps) {
			return &model.PortTakenError{Publish: p, Owner: "nginx (pid 7)"}
		}
	}
	for _, o := range d.attachments {
		for _, have := range o.Publishes {
			i := slices.IndexFunc(publishes, have.Collides)
			if o.Name != name && i >= 0 {
				return &model.PortTakenError{Publish: publishes[i], Owner: "endpoint " + o.Name}
			}
		}
	}
	return nil
}

// Leave removes the sandbox and the publishes of an endpoint. It is not an error if there is none.
func (d *Daemon) Leave(name string) error {
	if v := d.Find(name); v != nil {
		v.Sandbox, v.Publishes = "", nil
	}
	return nil
}

// RemoveDead removes the dead endpoints.
func (d *Daemon) RemoveDead() {
	d.attachments = slices.DeleteFunc(d.attachments, func(v api.View) bool { return d.Dead[v.Name] })
}

// Displace removes a dead endpoint. It reports whether the endpoint no longer exists.
func (d *Daemon) Displace(name string) (bool, error) {
	if d.Dead[name] {
		d.remove(name)
	}
	return d.Find(name) == nil, nil
}

// Remove removes an endpoint. It is not an error if there is none.
func (d *Daemon) Remove(name string) error {
	d.remove(name)
	return nil
}

func (d *Daemon) remove(name string) {
	d.attachments = slices.DeleteFunc(d.attachments, func(v api.View) bool { return v.Name == name })
}
