package daemon

import (
	"errors"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/daemon/external"
	"fairlead/internal/model"
)

// settle saves and applies a desired state. It omits sandboxes that ended meanwhile.
// On any other failure it restores the previous desired state, also on the host.
func (d *Daemon) settle(next model.Desired) error {
	before := d.desired
	for {
		err := d.attempt(next)
		if err == nil {
			d.services.forgetHealth(before, next)
			return nil
		}
		dead := d.sandboxes.dead(next)
		if len(dead) == 0 && d.networks.markUnavailable(before, next, err) {
			continue
		}
		if len(dead) == 0 {
			return d.rollBack(before, next, err)
		}
		d.clients.stopDead(dead)
		next, before = withoutSandboxes(next, dead), withoutSandboxes(before, dead)
	}
}

// cleanUp removes what belonged to sandboxes that have ended. Even if applying fails,
// they stay removed from the desired state.
func (d *Daemon) cleanUp(dead map[string]bool) error {
	for ref := range dead {
		d.cfg.Log.Info("sandbox is gone", "sandbox", ref)
	}
	d.clients.stopDead(dead)
	d.desired = withoutSandboxes(d.desired, dead)
	return d.settle(d.desired)
}

// attempt saves and applies a desired state.
func (d *Daemon) attempt(next model.Desired) error {
	if err := d.save(next); err != nil {
		return err
	}
	return d.applySaved()
}

// applySaved applies the desired state.
func (d *Daemon) applySaved() error {
	if err := d.services.apply(d.desired); err != nil {
		return err
	}
	d.sandboxes.forgetUnused()
	d.overlays.update()
	d.wakeHealer()
	d.services.needContainers(d.desired)
	d.changed()
	return nil
}

// rollBack restores the previous desired state and returns the error of the failed
// one. The code is Conflict if next is invalid.
func (d *Daemon) rollBack(before, next model.Desired, err error) error {
	if invalid := d.services.stateOf(next).Validate(); invalid != nil {
		err = &api.Fault{Code: api.Conflict, Err: invalid}
	}
	if back := d.attempt(before); back != nil {
		d.cfg.Log.Error("restore the previous state", "error", back)
		return errors.Join(err, d.save(before))
	}
	return err
}

// withoutSandboxes returns the desired state without what belonged to the sandboxes
// that have ended. An attachment with Keep set stays and waits.
func withoutSandboxes(w model.Desired, dead map[string]bool) model.Desired {
	next := w
	next.Attachments, next.Publishes = nil, nil
	gone := map[string]bool{}
	for _, a := range w.Attachments {
		if dead[a.Ref] {
			waited := a.Sandbox == "" && a.Origin == model.FromDocker
			a.Sandbox, a.Namespace, a.Lease = "", "", model.Lease{}
			if !a.Keep || waited { // Docker creates a new endpoint whenever it starts a container
				gone[a.Name] = true
				continue
			}
		}
		next.Attachments = append(next.Attachments, a)
	}
	for _, p := range w.Publishes {
		if !gone[p.Endpoint] {
			next.Publishes = append(next.Publishes, p)
		}
	}
	next.Networks = w.NetworksLeft(next.Attachments)
	return next
}

// adopt takes over the desired state of an earlier process. If it cannot be applied as
// a whole, adopt applies its objects one by one, and records a problem for each that
// fails.
func (d *Daemon) adopt(w model.Desired) {
	d.desired = w
	for _, a := range w.Attachments {
		if a.Sandbox != "" && a.HostInterface == "" {
			d.sandboxes.adopt(a)
		}
		if external.Is(a) {
			d.sandboxes.external.Await(a.Name, false)
		}
	}
	d.sandboxes.recordExternal()
	err := d.cleanUp(d.sandboxes.dead(d.desired))
	if err == nil {
		d.clients.startAll()
		return
	}
	d.cfg.Log.Error("take over the attachments", "error", err)
	d.adoptEach()
	d.clients.startAll()
}

// notApplied is the problem of an object that adoptEach has not applied yet.
const notApplied = "it has not been applied yet"

// adoptEach applies the objects of the desired state one after the other, and records a
// problem for each that fails. The desired state stays complete meanwhile, so that a
// daemon that is killed here loses nothing: what is not applied yet has a problem.
func (d *Daemon) adoptEach() {
	var networks, services, attachments, publishes []string
	for _, n := range d.desired.Networks {
		if permanent(n) {
			networks = append(networks, networkProblem(n.Name))
		}
	}
	for _, v := range d.desired.Services {
		services = append(services, serviceProblem(v.Name))
	}
	for _, a := range d.desired.Attachments {
		attachments = append(attachments, a.Name)
	}
	for _, p := range d.desired.Publishes {
		publishes = append(publishes, p.String())
	}
	for _, keys := range []*[]string{&networks, &services, &attachments, &publishes} {
		*keys = slices.DeleteFunc(*keys, func(key string) bool { return d.problems[key] != "" })
		for _, key := range *keys {
			d.problems[key] = notApplied
		}
	}
	d.admitEach(networks)
	if d.admit(services...) != nil {
		d.admitEach(services)
	}
	d.admitEach(attachments)
	d.admitEach(publishes)
}

// admitEach applies objects that are not applied yet, and records a problem for each
// that fails.
func (d *Daemon) admitEach(keys []string) {
	for _, key := range keys {
		if err := d.admit(key); err != nil {
			d.problem(key, err)
		}
	}
}

// admit applies objects that are not applied yet. If that fails, none of them is.
func (d *Daemon) admit(keys ...string) error {
	for _, key := range keys {
		delete(d.problems, key)
	}
	err := d.applySaved()
	if err != nil {
		for _, key := range keys {
			d.problems[key] = notApplied
		}
	}
	return err
}
