package daemon

import (
	"errors"
	"fmt"
	"slices"

	"fairlead/internal/model"
)

// hostState is what the wishes want of the host now, virtual services apart: of
// sandboxes that live, with the networks that they are in.
func (d *Daemon) hostState(w model.Desired) model.State {
	s := model.State{Endpoints: make([]model.Endpoint, 0, len(w.Attachments))}
	used, alive := map[string]bool{}, map[string]bool{}
	for _, a := range w.Attachments {
		if a.Sandbox == "" && a.Cgroup == "" || d.problems[a.Name] != "" {
			continue
		}
		used[a.Network], alive[a.Name] = true, true
		s.Endpoints = append(s.Endpoints, d.available(a.Leased()))
	}
	for _, n := range w.Networks {
		if used[n.Name] || standing(n) && d.problems[networkProblem(n.Name)] == "" {
			s.Networks = append(s.Networks, n)
		}
	}
	for _, p := range w.Publishes {
		if alive[p.Endpoint] && d.problems[p.String()] == "" {
			s.Publishes = append(s.Publishes, p)
		}
	}
	return s
}

// standing reports whether a network is on the host from the beginning, and not
// from its first endpoint on: a bridge of Docker's is, as Docker's own are, and
// because bridges are slow to go.
func standing(n model.Network) bool {
	return n.Origin == model.FromDocker && n.Driver == model.DriverBridge
}

// networkProblem is the name of a network's problem.
func networkProblem(network string) string { return "network " + network }

// settle makes the wishes ours and brings the host to them. Sandboxes that
// died meanwhile are left out. On any other failure wishes and host are as
// they were before.
func (d *Daemon) settle(next model.Desired) error {
	before := d.desired
	for {
		err := d.attempt(next)
		if err == nil {
			d.forgetServices(before, next)
			return nil
		}
		dead := d.dead(next)
		if len(dead) == 0 && d.part(before, next, err) {
			continue
		}
		if len(dead) == 0 {
			return d.rollBack(before, next, err)
		}
		d.stopDead(dead)
		next, before = without(next, dead), without(before, dead)
	}
}

// forgetServices has services that are wished no more begin anew if they are
// made again.
func (d *Daemon) forgetServices(before, now model.Desired) {
	for _, v := range before.Services {
		if !slices.ContainsFunc(now.Services, func(o model.VirtualService) bool { return o.Name == v.Name }) {
			d.health.Forget(v.Name)
		}
	}
}

// cleanUp takes away what was of sandboxes that are gone. Whatever fails, their
// wishes do not come back.
func (d *Daemon) cleanUp(dead map[string]bool) error {
	for ref := range dead {
		d.cfg.Log.Info("sandbox is gone", "sandbox", ref)
	}
	d.stopDead(dead)
	d.desired = without(d.desired, dead)
	return d.settle(d.desired)
}

// attempt writes the wishes and applies them.
func (d *Daemon) attempt(next model.Desired) error {
	if err := d.save(next); err != nil {
		return err
	}
	if err := d.reach(next); err != nil {
		return err
	}
	d.forget()
	d.answer()
	d.holdsOther()
	d.wantContainers(next)
	d.changed()
	return nil
}

func (d *Daemon) save(next model.Desired) error {
	if err := d.cfg.Store.SaveDesired(next); err != nil {
		return fmt.Errorf("write wishes: %w", err)
	}
	d.desired = next
	return nil
}

// rollBack goes back to the wishes before, and says whose mistake it was.
func (d *Daemon) rollBack(before, next model.Desired, err error) error {
	if invalid := d.state(next).Validate(); invalid != nil {
		err = &Fault{Conflict, invalid}
	}
	if back := d.attempt(before); back != nil {
		d.cfg.Log.Error("go back to the state before", "error", back)
		return errors.Join(err, d.save(before))
	}
	return err
}

// without returns the wishes without those of sandboxes that are gone. What is
// kept waits.
func without(w model.Desired, dead map[string]bool) model.Desired {
	next := w
	next.Attachments, next.Publishes = nil, nil
	gone := map[string]bool{}
	for _, a := range w.Attachments {
		if dead[a.Ref] {
			waited := a.Sandbox == "" && a.Origin == model.FromDocker
			a.Sandbox, a.Namespace, a.Lease = "", "", model.Lease{}
			if !a.Keep || waited { // Docker makes a new endpoint whenever it starts a container
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
	next.Networks = networksLeft(w, next)
	return next
}

// networksLeft returns the networks of some wishes without those that were made
// for attachments of which the next wishes have none.
func networksLeft(w, next model.Desired) []model.Network {
	unused := map[string]bool{}
	for _, a := range w.Attachments {
		unused[a.Network] = unused[a.Network] || a.Private
	}
	for _, a := range next.Attachments {
		unused[a.Network] = false
	}
	return slices.DeleteFunc(slices.Clone(w.Networks), func(n model.Network) bool { return unused[n.Name] })
}

// adopt takes over wishes of an earlier process. What cannot be applied now
// is no reason not to run: the rest is, one by one.
func (d *Daemon) adopt(w model.Desired) {
	d.desired = w
	for _, a := range w.Attachments {
		if a.Sandbox != "" && a.HostInterface == "" {
			d.enter(a)
		}
		if isExternal(a) {
			d.awaitExternal(a.Name, false)
		}
	}
	d.recordExternal()
	err := d.cleanUp(d.dead(d.desired))
	if err == nil {
		d.startClients()
		return
	}
	d.cfg.Log.Error("take over the attachments", "error", err)
	w = d.desired
	one := model.Desired{Networks: w.Networks}
	d.adoptNetworks(one)
	one.Services = d.adoptServices(one, w.Services)
	for _, a := range w.Attachments {
		one.Attachments = append(slices.Clip(one.Attachments), a)
		if err := d.attempt(one); err != nil {
			d.problem(a.Name, err)
		}
	}
	for _, p := range w.Publishes {
		one.Publishes = append(slices.Clip(one.Publishes), p)
		if err := d.attempt(one); err != nil {
			d.problem(p.String(), err)
		}
	}
	d.startClients()
}

// adoptServices applies virtual services, all at once or else one by one.
func (d *Daemon) adoptServices(one model.Desired, all []model.VirtualService) []model.VirtualService {
	if one.Services = all; d.attempt(one) == nil {
		return all
	}
	one.Services = nil
	for _, v := range all {
		one.Services = append(slices.Clip(one.Services), v)
		if err := d.attempt(one); err != nil {
			d.problem(serviceProblem(v.Name), err)
		}
	}
	return all
}

// adoptNetworks applies the networks that stand by themselves, one by one.
func (d *Daemon) adoptNetworks(only model.Desired) {
	all := slices.DeleteFunc(slices.Clone(only.Networks), func(n model.Network) bool { return !standing(n) })
	for _, n := range all {
		d.problems[networkProblem(n.Name)] = "it has not been tried"
	}
	for _, n := range all {
		delete(d.problems, networkProblem(n.Name))
		if err := d.attempt(only); err != nil {
			d.problem(networkProblem(n.Name), err)
		}
	}
}

// problem notes why a wish is not applied.
func (d *Daemon) problem(name string, err error) {
	d.problems[name] = err.Error()
	d.cfg.Log.Error("apply", "wish", name, "error", err)
}
