package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"fairlead/internal/api"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// Apply makes the host match what a set of files declares, in one step of the engine.
// It creates new objects, changes those that differ, and removes those that the same
// set declared before and no longer declares. It never changes objects of another
// origin (a command, Docker or another set): if such an object differs from the
// declaration, that is a mistake.
//
// Apply looks for all mistakes in the Spec before it changes anything. If it finds
// some, it returns a Fault with code Invalid that wraps Mistakes. If applying fails
// because of parts of the Spec (e.g. a port is taken), the Fault wraps Mistakes too.
// After a dry run, the Result contains the plan and the changes.
func (d *Daemon) Apply(ctx context.Context, spec api.Spec, dry bool) (api.Result, error) {
	found := d.locate(ctx, spec)
	r, leasing, err := d.applySpec(spec, found, dry)
	if err != nil || dry {
		return r, err
	}
	errs := make([]error, len(leasing))
	var all sync.WaitGroup
	for i, name := range leasing {
		all.Go(func() { errs[i] = d.awaitLease(ctx, name) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return r, fmt.Errorf(
			"the declaration is applied, but a lease is missing: %w: apply it again when a DHCP server answers", err)
	}
	if len(leasing) > 0 {
		r.Attachments = d.viewsOf(model.FileSet(spec.Set))
	}
	return r, nil
}

// located is the sandbox of a declared attachment, or why it cannot be used.
type located struct {
	sandbox.Sandbox
	err error
}

// locate finds the sandboxes of the declared attachments. A sandbox that does not run
// has no path.
func (d *Daemon) locate(ctx context.Context, spec api.Spec) []located {
	found := make([]located, len(spec.Attachments))
	for i, a := range spec.Attachments {
		at, err := d.cfg.Sandboxes.Resolve(ctx, a.Sandbox)
		if err != nil && !errors.Is(err, sandbox.ErrHost) {
			at, err = d.expect(a.Sandbox)
		}
		found[i] = located{at, err}
	}
	return found
}

// expect returns a sandbox that does not run. Either the text contains its kind, or it
// is the name of the sandbox of an attachment with Keep set.
func (d *Daemon) expect(text string) (sandbox.Sandbox, error) {
	at, err := sandbox.Expect(text)
	if err == nil {
		return at, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.desired.Attachments {
		known, e := sandbox.Expect(a.Ref)
		if e == nil && a.Keep && known.Name == text {
			return known, nil
		}
	}
	return at, err
}

// applySpec applies the Spec, and returns the attachments that still need a lease.
func (d *Daemon) applySpec(spec api.Spec, found []located, dry bool) (r api.Result, leasing []string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before, problems := d.desired, maps.Clone(d.problems)
	t := &draft{Daemon: d, origin: model.FileSet(spec.Set), spec: spec, found: found, taken: map[*watchedSandbox]sandbox.Sandbox{}, names: make([]string, len(found))}
	next, err := t.desired()
	r = api.Result{Notes: t.notes, Changes: changes(before, next)}
	r.Changed = len(r.Changes) > 0
	if err == nil && dry {
		r.Plan, _, err = d.plan(next)
	}
	if err != nil || dry {
		d.problems = problems
		return r, nil, err
	}
	if r.Changed {
		if err := d.applyDraft(t, next); err != nil {
			d.problems = problems
			if m := t.mistakesIn(err); len(m) > 0 {
				err = &api.Fault{Code: api.CodeOf(err), Err: m}
			}
			return api.Result{}, nil, fmt.Errorf("apply: %w", err)
		}
		d.cfg.Log.Info("applied", "set", spec.Set, "changes", len(r.Changes))
	}
	d.startClients()
	for _, a := range d.desired.Attachments {
		if a.DHCP && a.Sandbox != "" && a.Lease.IsZero() && slices.Contains(t.names, a.Name) {
			leasing = append(leasing, a.Name)
		}
	}
	r.Attachments = d.originViews(t.origin)
	return r, leasing, nil
}

// applyDraft applies the draft's desired state.
func (d *Daemon) applyDraft(t *draft, next model.Desired) error {
	for b, at := range t.taken {
		d.watch(b, at)
	}
	for _, a := range d.desired.Attachments {
		i := slices.IndexFunc(next.Attachments, func(o model.Attachment) bool { return o.Name == a.Name })
		if i < 0 || !next.Attachments[i].DHCP || next.Attachments[i].Ref != a.Ref {
			d.stopClient(a.Name)
			delete(d.problems, a.Name)
		}
	}
	err := d.settle(next)
	if err != nil {
		d.forgetUnused()
		d.startClients()
	}
	return err
}

// viewsOf returns the attachments of an origin.
func (d *Daemon) viewsOf(by model.Origin) []api.View {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.originViews(by)
}

func (d *Daemon) originViews(by model.Origin) []api.View {
	return slices.DeleteFunc(d.view(), func(v api.View) bool { return v.Origin != by })
}
