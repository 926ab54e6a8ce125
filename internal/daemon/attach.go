package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/daemon/leases"
	"fairlead/internal/daemon/spec"
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
	err = d.step(ctx, func() (err error) { r, a, err = d.attach(req, at, &before); return err })
	if err != nil || req.DryRun || !a.DHCP {
		return r, err
	}
	if err := d.awaitLease(ctx, a.Name); err != nil {
		if !r.Changed { // the attachment has worked before
			return api.Result{}, err
		}
		return api.Result{}, joinUndo(err, d.applier.undoAttach(context.WithoutCancel(ctx), a, before, req.Publishes))
	}
	r.Attachments = d.views(a.Name)
	return r, nil
}

// undoAttach restores the attachment that was there before a and the publishes that were added with it, or removes a if
// there was none. It does nothing if another request has changed a meanwhile.
func (ap *applier) undoAttach(ctx context.Context, a model.Attachment, before model.Desired,
	added []model.Publish) error {
	had, existed := before.Attachment(a.Name)
	return ap.step(ctx, func() error {
		have, exists := ap.desired.Attachment(a.Name)
		if have.Lease = a.Lease; !exists || !have.Equal(a) {
			return nil
		}
		if !existed {
			_, err := ap.detach([]model.Attachment{a}, api.DetachRequest{Name: a.Name})
			return err
		}
		if err := ap.leases.Stop(a.Name); err != nil {
			return err
		}
		defer ap.startLeasing()
		return ap.settle(spec.Unpublish(ap.desired.WithAttachment(leases.Restored(had, a)), before, a.Name, added))
	})
}

// attach is one attempt of Attach. before becomes the desired state before it.
func (d *Daemon) attach(req api.AttachRequest, at sandbox.Sandbox, before *model.Desired) (api.Result,
	model.Attachment, error) {
	*before = d.desired
	b, seen, err := d.sandboxes.inspect(at)
	if err != nil {
		return api.Result{}, model.Attachment{}, err
	}
	if old := d.sandboxes.watched[at.Ref]; old != nil && old != b {
		if err := d.applier.cleanUp(map[string]bool{at.Ref: true}); err != nil {
			return api.Result{}, model.Attachment{}, err
		}
	}
	next, err := spec.Compose(d.desired, req, contentsOf(at, seen))
	r, a := api.Result{Notes: next.Notes}, next.Attachment
	if err != nil {
		return r, a, err
	}
	if have, ok := d.desired.Attachment(a.Name); ok && have.Origin != a.Origin {
		if a.Origin, a.Keep = have.Origin, have.Keep; !have.Equal(a) {
			return r, a, spec.OtherOrigin("attachment "+a.Name, have.Origin)
		}
		next.Desired = next.Desired.WithAttachment(a)
	}
	next.Desired = spec.Publish(next.Desired, a.Name, req.Publishes)
	if err := spec.KeepsDeclared(d.desired.Publishes, next.Publishes); err != nil {
		return r, a, err
	}
	if req.DryRun {
		return d.dryRun(r, next.Desired, a)
	}
	if err := d.leases.Stop(leases.Gone(d.desired.Attachments, next.Attachments)...); err != nil {
		return r, a, err
	}
	failed := d.forget(a.Name, req.Publishes)
	if have, ok := d.desired.Attachment(a.Name); ok && have.Equal(a) && d.problems[a.Name] == "" && !failed &&
		slices.EqualFunc(next.Networks, d.desired.Networks, model.Network.Equal) &&
		slices.EqualFunc(next.Publishes, d.desired.Publishes, model.Publish.Equal) {
		r.Attachments = d.view(a.Name)
		return r, a, nil
	}
	delete(d.problems, a.Name)
	d.sandboxes.watch(b, at)
	if err := d.applier.settle(next.Desired); err != nil {
		return r, a, fmt.Errorf("attach %s to %s: %w", at.Ref, a.Network, err)
	}
	if have, ok := d.desired.Attachment(a.Name); !ok || have.Sandbox == "" {
		return r, a, api.Faultf(api.Failed, "attach %s to %s: the sandbox ended meanwhile", at.Ref, a.Network)
	}
	if why := d.problems[a.Name]; why != "" {
		return r, a, api.Faultf(api.Failed, "attach %s to %s: %s", at.Ref, a.Network, why)
	}
	r.Changed = true
	r.Attachments = d.view(a.Name)
	d.cfg.Log.Info("attached", "sandbox", at.Ref, "network", a.Network, "attachment", a.Name, "interface", a.Interface)
	return r, a, nil
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

// dryRun adds to the result what the desired state would change.
func (d *Daemon) dryRun(r api.Result, next model.Desired, a model.Attachment) (api.Result, model.Attachment, error) {
	text, changed, err := d.applier.plan(next)
	r.Plan, r.Changed = text, changed
	return r, a, err
}
