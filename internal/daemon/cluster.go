package daemon

import (
	"fmt"
	"slices"

	"fairlead/internal/daemon/sockets"
	"fairlead/internal/daemon/spec"
	"fairlead/internal/daemon/state"
	"fairlead/internal/daemon/step"
	"fairlead/internal/model"
)

// SetCluster replaces the networks and services of the cluster, which have the origin
// model.FromCluster. An object that this host cannot have is a problem of that object
// alone: the host keeps its earlier form, if there is one. It returns these problems;
// each begins with its object. A network that the cluster no longer has stays until its
// last attachment on this host is gone.
func (d *Daemon) SetCluster(networks []model.Network, services []model.VirtualService) []string {
	defer d.services.Prepare(services)()
	problems, err := step.For(d.state.Life, d.steps,
		func() ([]string, error) { return setCluster(d, networks, services) })
	if err != nil {
		problems = append(problems, "the cluster's networks and services: "+err.Error())
	}
	return problems
}

// setCluster is one attempt of SetCluster. Returns an engine.UnopenedError if an object waits for its ports.
func setCluster(d *Daemon, networks []model.Network, services []model.VirtualService) (problems []string, err error) {
	checks := spec.ClusterChecks{Overlap: d.networks.CheckOverlap, Acceptable: d.acceptable,
		Failed: func(service string) bool { return d.state.Problems[state.OfService(service)] != "" }}
	next, together, problems := d.composeCluster(spec.ClusterChanges(d.state.Desired(), networks, services, checks))
	if len(together) == 0 {
		return problems, nil
	}
	if err = d.applier.Settle(next); err == nil {
		d.state.Log.Info("cluster", "changes", len(together))
	}
	if err == nil || sockets.AreUnopened(err) {
		return problems, err
	}
	for _, c := range together {
		next, err := d.withChange(d.state.Desired(), c)
		if err == nil {
			err = d.applier.Settle(next)
		}
		if sockets.AreUnopened(err) {
			return problems, err
		}
		if err != nil {
			problems = append(problems, c.Problem(err))
		}
	}
	return problems, nil
}

func ofCluster(n model.Network) bool { return n.Origin == model.FromCluster }

// LeaveCluster removes the networks and services of the cluster, and the attachments to
// these networks.
func (d *Daemon) LeaveCluster() error { return d.steps.Do(d.state.Life, d.leaveCluster) }

// leaveCluster is one attempt of LeaveCluster.
func (d *Daemon) leaveCluster() error {
	names := d.state.Desired().ClusterAttachments()
	if err := d.leases.Stop(names...); err != nil {
		return err
	}
	attached := map[string]bool{}
	for _, name := range names {
		attached[name] = true
	}
	next := d.state.Desired().WithoutAttachments(attached)
	next.Networks = slices.DeleteFunc(slices.Clone(next.Networks), ofCluster)
	next.Services = slices.DeleteFunc(slices.Clone(next.Services),
		func(v model.VirtualService) bool { return v.Origin == model.FromCluster })
	for name := range attached {
		delete(d.state.Problems, name)
	}
	if err := d.applier.Settle(next); err != nil {
		return fmt.Errorf("remove the cluster's networks and services: %w", err)
	}
	return nil
}

// ClusterAttachments returns the names of the attachments to networks of the cluster.
func (d *Daemon) ClusterAttachments() []string {
	d.state.Lock()
	defer d.state.Unlock()
	return d.state.Desired().ClusterAttachments()
}

// composeCluster returns the desired state with all changes that are possible, and these
// changes.
func (d *Daemon) composeCluster(changes []spec.ClusterChange) (next model.Desired, made []spec.ClusterChange,
	problems []string) {
	next = d.state.Desired()
	for _, c := range changes {
		changed, err := d.withChange(next, c)
		if err != nil {
			problems = append(problems, c.Problem(err))
			continue
		}
		next, made = changed, append(made, c)
	}
	return next, made, problems
}

// withChange returns the desired state with a change. It deletes the problem of the change's service, which will be
// tried again.
func (d *Daemon) withChange(w model.Desired, c spec.ClusterChange) (model.Desired, error) {
	next, err := c.In(w)
	if err == nil && c.Service != "" {
		delete(d.state.Problems, state.OfService(c.Service))
	}
	return next, err
}

// ClusterNetworks returns the cluster's networks that this host has, also those without attachments, but no peers.
func (d *Daemon) ClusterNetworks() []model.Network {
	d.state.Lock()
	defer d.state.Unlock()
	all := slices.Clone(d.state.Desired().Networks)
	all = slices.DeleteFunc(all, func(n model.Network) bool { return !ofCluster(n) })
	for i := range all {
		all[i].Overlay.Peers = nil // there can be a thousand
	}
	return model.State{Networks: all}.Clone().Networks
}
