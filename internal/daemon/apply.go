package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"fairlead/internal/api"
	"fairlead/internal/daemon/leases"
	"fairlead/internal/daemon/spec"
	"fairlead/internal/daemon/state"
	"fairlead/internal/daemon/stored"
	"fairlead/internal/daemon/watched"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// Apply makes the host match what a set of files declares, in one step of the engine.
// It creates new objects, changes those that differ, and removes those that the same
// set declared before and no longer declares. Objects of commands become the set's if
// they are as declared, or if the Spec says Adopt. Apply changes no other objects of
// another origin (a command, Docker or another set): if such an object differs from the
// declaration, that is a mistake.
//
// If the Spec is an Edit, Apply changes objects of commands instead. It returns a Fault
// with code Conflict if one of them has changed since the user began.
//
// Apply looks for all mistakes in the Spec before it changes anything. If it finds
// some, it returns a Fault with code Invalid that wraps Mistakes. If the host or
// the gateway refuses parts of the Spec (e.g. a port is taken), the Fault wraps Mistakes too.
// After a dry run, the Result contains the plan and the changes.
func (d *Daemon) Apply(ctx context.Context, s api.Spec, dry bool) (r api.Result, err error) {
	found := d.locate(ctx, s)
	check := d.gatewayCheck(s.Gateway)
	var leasing []string
	var changed changedGateway
	err = d.steps.Do(ctx, func() (err error) {
		r, leasing, changed, err = d.applySpec(s, found, check, dry)
		return err
	})
	if err != nil || dry {
		return r, err
	}
	if err := d.awaitGateway(ctx, changed); err != nil {
		return api.Result{}, fmt.Errorf("apply: %w", spec.AtGateway(s, err))
	}
	errs := make([]error, len(leasing))
	var all sync.WaitGroup
	for i, name := range leasing {
		all.Go(func() { errs[i] = d.steps.AwaitLease(ctx, name) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return r, fmt.Errorf(
			"the declaration is applied, but a lease is missing: %w: the daemon goes on asking", err)
	}
	if len(leasing) > 0 {
		r.Attachments = viewsOf(spec.OriginOf(s), d.views())
	}
	return r, nil
}

// locate finds the sandboxes of the declared attachments. A sandbox that does not run
// has no path.
func (d *Daemon) locate(ctx context.Context, s api.Spec) []spec.Located {
	found := make([]spec.Located, len(s.Attachments))
	for i, a := range s.Attachments {
		at, err := d.cfg.Sandboxes.Resolve(ctx, a.Sandbox)
		if err != nil && !errors.Is(err, sandbox.ErrHost) {
			at, err = d.sandboxes.Expect(a.Sandbox)
		}
		found[i] = spec.Located{Sandbox: spec.Sandbox{Sandbox: at}, Err: err}
	}
	return found
}

// applySpec applies the Spec, and returns the attachments that still need a lease, and whether the gateway has changed.
// check is that of spec.Draft.
func (d *Daemon) applySpec(s api.Spec, found []spec.Located, check func(model.Gateway) (api.Mistakes, []string),
	dry bool) (r api.Result, leasing []string, changed changedGateway, err error) {
	before, problems := d.state.Desired(), maps.Clone(d.state.Problems)
	if err := stored.CheckEdit(before, s.Edit); err != nil {
		return r, nil, changed, err
	}
	running := d.sandboxes.InspectLocated(found)
	t := spec.NewDraft(before, s, found, d.networks.CheckOverlap)
	t.CheckGateway = check
	next, err := d.draft(t)
	r = api.Result{Changes: spec.Changes(before, next)}
	r.Notes = append(t.Notes, spec.NoteAdopted(r.Changes)...)
	r.Changed = len(r.Changes) > 0 || len(d.state.Problems) < len(problems)
	if err == nil && dry {
		planned, failed := d.applier.Plan(next)
		r.Plan, err = planned.Plan, failed
	}
	if err != nil || dry {
		d.state.Problems = problems
		return r, nil, changed, err
	}
	if r.Changed {
		if err := d.applyDraft(running, next); err != nil {
			d.state.Problems = problems
			if m := t.MistakesIn(err); len(m) > 0 {
				err = &api.Fault{Code: api.CodeOf(err), Err: m}
			}
			return api.Result{}, nil, changed, fmt.Errorf("apply: %w", err)
		}
		d.state.Log.Info("applied", "set", s.Set, "changes", len(r.Changes))
	}
	if !next.Gateway.Equal(before.Gateway) {
		maps.DeleteFunc(problems, func(name, _ string) bool { return d.state.Problems[name] != "" })
		changed = changedGateway{d.wantGateway(), d.state.Desired().Gateway, before, t.Origin(), problems}
	}
	d.steps.StartLeasing()
	for _, a := range d.state.Desired().Attachments {
		if a.DHCP && a.Sandbox != "" && a.Lease.IsZero() && slices.Contains(t.Names, a.Name) {
			leasing = append(leasing, a.Name)
		}
	}
	r.Attachments = viewsOf(t.Origin(), d.view())
	return r, leasing, changed, nil
}

// draft returns the draft's desired state, or the mistakes: those that the draft finds,
// and what drivers and publish modes refuse. It deletes the problems of what is declared.
func (d *Daemon) draft(t *spec.Draft) (model.Desired, error) {
	next, err := t.Desired()
	if err != nil {
		return next, err
	}
	for _, name := range slices.Concat(t.Declared.Attachments, t.Declared.Publishes) {
		delete(d.state.Problems, name)
	}
	for _, name := range t.Declared.Services {
		delete(d.state.Problems, state.OfService(name))
	}
	if _, err = d.engine.Plan(t.Trial(d.services.StateOf(next))); err == nil {
		return next, nil
	}
	if m := t.MistakesIn(err); len(m) > 0 {
		err = &api.Fault{Code: api.Invalid, Err: m}
	}
	return d.state.Desired(), err
}

// applyDraft watches the sandboxes of a draft and applies its desired state.
func (d *Daemon) applyDraft(running map[*watched.Sandbox]sandbox.Sandbox, next model.Desired) error {
	for b, at := range running {
		d.sandboxes.Watch(b, at)
	}
	gone := leases.Gone(d.state.Desired().Attachments, next.Attachments)
	if err := d.leases.Stop(gone...); err != nil {
		return err
	}
	for _, name := range gone {
		delete(d.state.Problems, name)
	}
	err := d.applier.Settle(next)
	if err != nil {
		d.sandboxes.ForgetUnused()
	}
	return err
}

// viewsOf returns the views of the attachments of an origin.
func viewsOf(by model.Origin, all []api.View) []api.View {
	return slices.DeleteFunc(all, func(v api.View) bool { return v.Origin != by })
}
