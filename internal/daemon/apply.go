package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// Apply makes the host as a set of files declares it, in one step of the
// engine: what is new is made, what is otherwise is changed, and what the same
// set declared before and does no longer is taken away. What others have made,
// by a command or another engine, stays as it is; where it is otherwise than
// declared, that is a mistake. Every mistake in the Spec is found before
// anything is done; the error then wraps Mistakes.
//
// Of a dry run, the Result holds the plan and the changes.
func (d *Daemon) Apply(ctx context.Context, spec Spec, dry bool) (Result, error) {
	found := d.lookUp(ctx, spec)
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
		return r, fmt.Errorf("what was declared is applied, but: %w: apply it again when a server answers", err)
	}
	if len(leasing) > 0 {
		r.Attachments = d.of(model.FileSet(spec.Set))
	}
	return r, nil
}

// located is where the sandbox of a declared attachment was found.
type located struct {
	sandbox.Sandbox
	err error
}

// lookUp finds the sandboxes. One that is away has no path.
func (d *Daemon) lookUp(ctx context.Context, spec Spec) []located {
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

// expect returns what is known of a sandbox that is away: by its kind, or by
// an attachment that has been made when it was there.
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

// applySpec takes the step, and returns the attachments that have to wait for
// a lease.
func (d *Daemon) applySpec(spec Spec, found []located, dry bool) (r Result, leasing []string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before, problems := d.desired, maps.Clone(d.problems)
	t := &draft{Daemon: d, by: model.FileSet(spec.Set), spec: spec, found: found, taken: map[*watchedSandbox]sandbox.Sandbox{}, names: make([]string, len(found))}
	next, err := t.desired()
	r = Result{Notes: t.notes, Changes: changes(before, next)}
	r.Changed = len(r.Changes) > 0
	if err == nil && dry {
		r.Plan, _, err = d.plan(next)
	}
	if err != nil || dry {
		d.problems = problems
		return r, nil, err
	}
	if r.Changed {
		if err := d.takeStep(t, next); err != nil {
			d.problems = problems
			if m := t.blamed(err); len(m) > 0 {
				err = &Fault{CodeOf(err), m}
			}
			return Result{}, nil, fmt.Errorf("apply: %w", err)
		}
		d.cfg.Log.Info("applied", "set", spec.Set, "changes", len(r.Changes))
	}
	d.startClients()
	for _, a := range d.desired.Attachments {
		if a.DHCP && a.Sandbox != "" && a.Lease.IsZero() && slices.Contains(t.names, a.Name) {
			leasing = append(leasing, a.Name)
		}
	}
	r.Attachments = d.ofOrigin(t.by)
	return r, leasing, nil
}

// takeStep makes the draft's wishes ours and the host's.
func (d *Daemon) takeStep(t *draft, next model.Desired) error {
	for b, at := range t.taken {
		d.hold(b, at)
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
		d.forget()
		d.startClients()
	}
	return err
}

// of returns the attachments of an origin.
func (d *Daemon) of(by model.Origin) []View {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ofOrigin(by)
}

func (d *Daemon) ofOrigin(by model.Origin) []View {
	return slices.DeleteFunc(d.view(), func(v View) bool { return v.Origin != by })
}
