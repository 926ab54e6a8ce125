package daemon

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/model"
)

// clusterChange is one change of an object of the cluster.
type clusterChange struct {
	object string // e.g. "network web"
	// in returns a desired state with the change.
	in func(model.Desired) (model.Desired, error)
}

// SetCluster replaces the networks and services of the cluster, which have the origin
// model.FromCluster. An object that this host cannot have is a problem of that object
// alone: the host keeps its earlier form, if there is one. It returns these problems;
// each begins with its object. A network that the cluster no longer has stays until its
// last attachment on this host is gone.
func (d *Daemon) SetCluster(networks []model.Network, services []model.VirtualService) (problems []string) {
	d.engine.Prepare(services)
	d.mu.Lock()
	defer d.mu.Unlock()
	next, together, problems := d.composeCluster(d.clusterChanges(networks, services))
	if len(together) == 0 {
		return problems
	}
	if d.applier.settle(next) == nil {
		d.cfg.Log.Info("cluster", "changes", len(together))
		return problems
	}
	for _, c := range together {
		next, err := c.in(d.desired)
		if err == nil {
			err = d.applier.settle(next)
		}
		if err != nil {
			problems = append(problems, clusterProblem(c, err))
		}
	}
	return problems
}

func ofCluster(n model.Network) bool { return n.Origin == model.FromCluster }

// LeaveCluster removes the networks and services of the cluster, and the attachments to
// these networks.
func (d *Daemon) LeaveCluster() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	attached := map[string]bool{}
	for _, name := range d.desired.ClusterAttachments() {
		attached[name] = true
	}
	next := d.desired.WithoutAttachments(attached)
	next.Networks = slices.DeleteFunc(slices.Clone(next.Networks), ofCluster)
	next.Services = slices.DeleteFunc(slices.Clone(next.Services),
		func(v model.VirtualService) bool { return v.Origin == model.FromCluster })
	for name := range attached {
		d.clients.stop(name)
		delete(d.problems, name)
	}
	if err := d.applier.settle(next); err != nil {
		return fmt.Errorf("remove the cluster's networks and services: %w", err)
	}
	return nil
}

// ClusterAttachments returns the names of the attachments to networks of the cluster.
func (d *Daemon) ClusterAttachments() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.desired.ClusterAttachments()
}

// composeCluster returns the desired state with all changes that are possible, and these
// changes.
func (d *Daemon) composeCluster(changes []clusterChange) (next model.Desired, made []clusterChange, problems []string) {
	next = d.desired
	for _, c := range changes {
		changed, err := c.in(next)
		if err != nil {
			problems = append(problems, clusterProblem(c, err))
			continue
		}
		next, made = changed, append(made, c)
	}
	return next, made, problems
}

// clusterProblem returns the text of an error, which begins with its object.
func clusterProblem(c clusterChange, err error) string {
	if strings.HasPrefix(err.Error(), c.object+": ") {
		return err.Error()
	}
	return c.object + ": " + err.Error()
}

// clusterChanges compares the objects of the cluster with the desired state. Deletions
// come first, and networks before services.
func (d *Daemon) clusterChanges(networks []model.Network, services []model.VirtualService) []clusterChange {
	var changes []clusterChange
	wanted := map[string]bool{} // by object
	for _, v := range services {
		wanted["service "+v.Name] = true
	}
	for _, n := range networks {
		wanted["network "+n.Name] = true
	}
	haveServices, haveNetworks := map[string]model.VirtualService{}, map[string]model.Network{}
	for _, v := range d.desired.Services {
		haveServices[v.Name] = v
		if v.Origin == model.FromCluster && !wanted["service "+v.Name] {
			changes = append(changes, clusterChange{"service " + v.Name, d.withoutService(v.Name)})
		}
	}
	for _, n := range d.desired.Networks {
		haveNetworks[n.Name] = n
		if ofCluster(n) && !wanted["network "+n.Name] {
			changes = append(changes, clusterChange{"network " + n.Name, withoutNetwork(n.Name)})
		}
	}
	for _, n := range networks {
		n.Origin = model.FromCluster
		if have, known := haveNetworks[n.Name]; !known || !have.Equal(n) {
			changes = append(changes, clusterChange{"network " + n.Name, d.withNetwork(n)})
		}
	}
	for _, v := range services {
		v.Origin = model.FromCluster
		if have, known := haveServices[v.Name]; !known || !have.Equal(v) || d.problems[serviceProblem(v.Name)] != "" {
			changes = append(changes, clusterChange{"service " + v.Name, d.withService(v)})
		}
	}
	return changes
}

func (d *Daemon) withoutService(name string) func(model.Desired) (model.Desired, error) {
	return func(w model.Desired) (model.Desired, error) {
		delete(d.problems, serviceProblem(name))
		w.Services = slices.DeleteFunc(slices.Clone(w.Services),
			func(v model.VirtualService) bool { return v.Name == name })
		return w, nil
	}
}

func withoutNetwork(name string) func(model.Desired) (model.Desired, error) {
	return func(w model.Desired) (model.Desired, error) {
		for _, a := range w.Attachments {
			if a.Network == name {
				return w, fmt.Errorf("the cluster no longer has this network, and %s is still attached to it: "+
					"detach it", a.Name)
			}
		}
		w.Networks = slices.DeleteFunc(slices.Clone(w.Networks),
			func(n model.Network) bool { return n.Name == name })
		return w, nil
	}
}

func (d *Daemon) withNetwork(n model.Network) func(model.Desired) (model.Desired, error) {
	return func(w model.Desired) (model.Desired, error) {
		networks := slices.Clone(w.Networks)
		i := slices.IndexFunc(networks, func(o model.Network) bool { return o.Name == n.Name })
		switch {
		case i < 0:
			networks = append(networks, n)
		case networks[i].Origin != model.FromCluster:
			return w, fmt.Errorf("this host has another network with this name: remove that one")
		default:
			networks[i] = n
		}
		if err := d.networks.checkOverlap(w, n); err != nil {
			return w, err
		}
		next := w
		next.Networks = networks
		if err := d.acceptable(next, n); err != nil {
			return w, err
		}
		return next, nil
	}
}

func (d *Daemon) withService(v model.VirtualService) func(model.Desired) (model.Desired, error) {
	return func(w model.Desired) (model.Desired, error) {
		if err := v.Validate(); err != nil {
			return w, err
		}
		if have, known := w.Service(v.Name); known && have.Origin != model.FromCluster {
			return w, fmt.Errorf("this host has another service with this name: remove that one")
		}
		delete(d.problems, serviceProblem(v.Name))
		return w.WithService(v), nil
	}
}

// ClusterNetworks returns the cluster's networks that this host has, also those without attachments, but no peers.
func (d *Daemon) ClusterNetworks() []model.Network {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(d.desired.Networks), func(n model.Network) bool { return !ofCluster(n) })
	for i := range all {
		all[i].Overlay.Peers = nil // there can be a thousand
	}
	return model.State{Networks: all}.Clone().Networks
}
