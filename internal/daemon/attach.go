package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/daemon/leases"
	"fairlead/internal/daemon/spec"
	"fairlead/internal/daemon/watched"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// Attach attaches a running sandbox to a network, or changes its attachment. A repeated
// request changes nothing. CodeOf returns NotFound for its error if the sandbox does
// not run (sandbox.ErrAbsent) or there is no such network, Invalid if the request has a
// mistake or the sandbox is the host (sandbox.ErrHost), and Conflict if another
// attachment contradicts it or the attachment has another origin.
func (d *Daemon) Attach(ctx context.Context, req api.AttachRequest) (r api.Result, err error) {
	if req.Cgroup != "" || req.Unpublished != "" {
		return api.Result{}, api.Faultf(api.Invalid,
			"attach %s: cgroups are for workloads of the host's own network: use `fairlead run`", req.Sandbox)
	}
	if req.HostInterface != "" {
		return api.Result{}, api.Faultf(api.Invalid,
			"attach %s: hostInterface %s: only container engines set it, because they move links into their sandboxes themselves: leave it out", req.Sandbox, req.HostInterface)
	}
	at, err := d.cfg.Sandboxes.Resolve(ctx, req.Sandbox)
	if err != nil {
		return api.Result{}, sandboxFault(err)
	}
	var a model.Attachment
	var before model.Desired
	err = d.steps.Do(ctx, func() (err error) { r, a, err = d.attach(req, at, &before); return err })
	if err != nil || req.DryRun || !a.DHCP {
		return r, err
	}
	if err := d.steps.AwaitLease(ctx, a.Name); err != nil {
		if !r.Changed { // the attachment has worked before
			return api.Result{}, err
		}
		return api.Result{}, joinUndo(err, d.undoAttach(context.WithoutCancel(ctx), a, before, req.Publishes))
	}
	r.Attachments = d.views(a.Name)
	return r, nil
}

// undoAttach restores the attachment that was there before a and the publishes that were added with it, or removes a if
// there was none. It does nothing if another request has changed a meanwhile.
func (d *Daemon) undoAttach(ctx context.Context, a model.Attachment, before model.Desired,
	added []model.Publish) error {
	had, existed := before.Attachment(a.Name)
	return d.steps.Do(ctx, func() error {
		have, exists := d.state.Desired().Attachment(a.Name)
		if have.Lease = a.Lease; !exists || !have.Equal(a) {
			return nil
		}
		if !existed {
			_, err := d.detachAll([]model.Attachment{a}, api.DetachRequest{Name: a.Name})
			return err
		}
		if err := d.leases.Stop(a.Name); err != nil {
			return err
		}
		defer d.steps.StartLeasing()
		next := d.state.Desired().WithAttachment(leases.Restored(had, a))
		return d.applier.Settle(spec.Unpublish(next, before, a.Name, added))
	})
}

// attach is one attempt of Attach. before becomes the desired state before it.
func (d *Daemon) attach(req api.AttachRequest, at sandbox.Sandbox, before *model.Desired) (api.Result,
	model.Attachment, error) {
	*before = d.state.Desired()
	b, seen, err := d.sandboxes.Inspect(at)
	if err != nil {
		return api.Result{}, model.Attachment{}, err
	}
	if d.sandboxes.Replaces(b) {
		if err := d.applier.CleanUp(map[string]bool{at.Ref: true}); err != nil {
			return api.Result{}, model.Attachment{}, err
		}
	}
	have := d.state.Desired()
	next, err := composeAttach(have, req, watched.ContentsOf(at, seen))
	r, a := api.Result{Notes: next.Notes}, next.Attachment
	if err != nil {
		return r, a, err
	}
	if req.DryRun {
		planned, err := d.applier.Plan(next.Desired)
		planned.Notes = r.Notes
		return planned, a, err
	}
	if err := d.leases.Stop(leases.Gone(have.Attachments, next.Attachments)...); err != nil {
		return r, a, err
	}
	failed := d.forget(a.Name, req.Publishes)
	if was, known := have.Attachment(a.Name); known && was.Equal(a) && d.state.Problems[a.Name] == "" && !failed &&
		slices.EqualFunc(next.Networks, have.Networks, model.Network.Equal) &&
		slices.EqualFunc(next.Publishes, have.Publishes, model.Publish.Equal) {
		r.Attachments = d.view(a.Name)
		return r, a, nil
	}
	delete(d.state.Problems, a.Name)
	d.sandboxes.Watch(b, at)
	if err := d.applier.Settle(next.Desired); err != nil {
		return r, a, fmt.Errorf("attach %s to %s: %w", at.Ref, a.Network, err)
	}
	if have, ok := d.state.Desired().Attachment(a.Name); !ok || have.Sandbox == "" {
		return r, a, api.Faultf(api.Failed, "attach %s to %s: the sandbox ended meanwhile", at.Ref, a.Network)
	}
	if why := d.state.Problems[a.Name]; why != "" {
		return r, a, api.Faultf(api.Failed, "attach %s to %s: %s", at.Ref, a.Network, why)
	}
	r.Changed = true
	r.Attachments = d.view(a.Name)
	d.state.Log.Info("attached", "sandbox", at.Ref, "network", a.Network, "attachment", a.Name,
		"interface", a.Interface)
	return r, a, nil
}

// composeAttach returns the desired state with a requested attachment and its publishes.
func composeAttach(have model.Desired, req api.AttachRequest, at spec.Sandbox) (spec.Composed, error) {
	next, err := spec.Compose(have, req, at)
	if err != nil {
		return next, err
	}
	a := &next.Attachment
	if was, known := have.Attachment(a.Name); known && was.Origin != a.Origin {
		if a.Origin, a.Keep = was.Origin, was.Keep; !was.Equal(*a) {
			return next, spec.OtherOrigin("attachment "+a.Name, was.Origin)
		}
		next.Desired = next.Desired.WithAttachment(*a)
	}
	next.Desired = spec.Publish(next.Desired, a.Name, req.Publishes)
	return next, spec.KeepsDeclared(have.Publishes, next.Publishes)
}

// sandboxFault gives an error of finding a sandbox its code.
func sandboxFault(err error) error {
	switch {
	case errors.Is(err, sandbox.ErrAbsent):
		return &api.Fault{Code: api.NotFound, Err: err}
	case errors.Is(err, sandbox.ErrHost):
		return &api.Fault{Code: api.Invalid, Err: err}
	}
	return err
}
