package daemon

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/daemon/spec"
	"fairlead/internal/daemon/state"
	"fairlead/internal/daemon/step"
	"fairlead/internal/model"
)

// CreateNetwork creates or changes a network. Its objects are created on the host with
// its first attachment. The objects of a bridge that Docker uses are created at once.
// Returns a Fault with code Invalid if the network or its driver's options have a
// mistake. The code is Conflict if a subnet overlaps one that the host reaches, or if
// the network exists with another driver or another origin.
func (d *Daemon) CreateNetwork(n model.Network, dry bool) (api.Result, error) {
	return step.For(d.state.Life, d.steps, func() (api.Result, error) { return createNetwork(d, n, dry) })
}

// createNetwork is one attempt of CreateNetwork.
func createNetwork(d *Daemon, n model.Network, dry bool) (api.Result, error) {
	if n.Traits().NoLink {
		return api.Result{}, api.Faultf(api.Invalid, "network %s: driver %s attaches no sandboxes: choose another",
			n.Name, n.Driver)
	}
	w := d.state.Desired()
	if err := d.networks.CheckOverlap(w, n); err != nil {
		return api.Result{}, err
	}
	have, known := w.Network(n.Name)
	switch {
	case known && have.Equal(n):
		return api.Result{}, nil
	case known && have.Origin != n.Origin:
		if n.Origin = have.Origin; have.Equal(n) {
			return api.Result{}, nil
		}
		return api.Result{}, spec.OtherOrigin("network "+n.Name, n.Origin)
	case known && have.Driver != n.Driver:
		return api.Result{}, api.Faultf(api.Conflict,
			"network %s already exists with driver %s: remove it first", n.Name, have.Driver)
	}
	next := w.WithNetwork(n)
	if err := d.acceptable(next, n); err != nil {
		return api.Result{}, &api.Fault{Code: api.Invalid, Err: err}
	}
	if dry {
		return d.applier.Plan(next)
	}
	if err := d.applier.Settle(next); err != nil {
		return api.Result{}, fmt.Errorf("create network %s: %w", n.Name, err)
	}
	d.state.Log.Info("network", "name", n.Name, "driver", n.Driver)
	return api.Result{Changed: true}, nil
}

// acceptable returns an error if a desired state has mistakes in its networks, or if the
// driver of this one does not accept it.
func (d *Daemon) acceptable(next model.Desired, n model.Network) error {
	if err := (model.State{Networks: next.Networks}).Validate(); err != nil {
		return err
	}
	// Only a plan that contains the network shows whether its driver accepts it.
	trial := d.services.StateOf(next)
	if _, used := trial.Network(n.Name); !used {
		trial.Networks = append(slices.Clip(trial.Networks), n)
	}
	_, err := d.engine.Plan(trial)
	return err
}

// RemoveNetwork removes a network without attachments. If there is no such network, it
// returns a note and no error. Returns a Fault with code Conflict if the network has
// attachments or if files declare it.
func (d *Daemon) RemoveNetwork(name string) (api.Result, error) {
	return step.For(d.state.Life, d.steps, func() (api.Result, error) { return removeNetwork(d, name) })
}

// removeNetwork is one attempt of RemoveNetwork.
func removeNetwork(d *Daemon, name string) (api.Result, error) {
	n, _ := d.state.Desired().Network(name)
	if n.Origin.IsFile() || n.Origin == model.FromCluster {
		return api.Result{}, spec.OtherOrigin("network "+name, n.Origin)
	}
	var users []string
	for _, a := range d.state.Desired().Attachments {
		if a.Network == name {
			users = append(users, a.Name)
		}
	}
	if len(users) > 0 {
		return api.Result{}, api.Faultf(api.Conflict,
			"network %s has attachments (%s): detach them first", name, strings.Join(users, ", "))
	}
	next := d.state.Desired().WithoutNetwork(name)
	if len(next.Networks) == len(d.state.Desired().Networks) {
		return api.Result{Notes: []string{fmt.Sprintf("there is no network %s: nothing to do", name)}}, nil
	}
	delete(d.state.Problems, state.OfNetwork(name))
	if err := d.applier.Settle(next); err != nil {
		return api.Result{}, fmt.Errorf("remove network %s: %w", name, err)
	}
	d.state.Log.Info("network removed", "name", name)
	return api.Result{Changed: true}, nil
}

// Networks returns the networks, sorted by name.
func (d *Daemon) Networks() []model.Network {
	d.state.Lock()
	defer d.state.Unlock()
	all := d.state.Desired().Clone().Networks
	slices.SortFunc(all, func(a, b model.Network) int { return strings.Compare(a.Name, b.Name) })
	return all
}
