package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/daemon/spec"
	"fairlead/internal/daemon/step"
	"fairlead/internal/model"
)

// Detach removes attachments and their publishes. It is not an error if there are
// none. If no attachment has the given name, the name may be a sandbox, such as a PID,
// with exactly one attachment. Returns a Fault with code Conflict if the sandbox has
// several attachments, or if files declare the attachment.
func (d *Daemon) Detach(ctx context.Context, req api.DetachRequest) (api.Result, error) {
	refs, named := d.refs(ctx, req.Sandbox), d.refs(ctx, req.Name)
	return step.For(ctx, d.steps, func() (api.Result, error) { return d.detach(req, refs, named) })
}

// detach implements Detach. refs and named are those of the request's sandbox and name.
func (d *Daemon) detach(req api.DetachRequest, refs, named func(string) bool) (api.Result, error) {
	found := d.attachments(func(a model.Attachment) bool {
		return a.Name == req.Name || req.Name == "" && a.Network == req.Network && refs(a.Ref)
	})
	if len(found) == 0 && req.Name != "" {
		if found = d.attachments(func(a model.Attachment) bool { return named(a.Ref) }); len(found) > 1 {
			return api.Result{}, api.Faultf(api.Conflict,
				"%s has several attachments: name one of %s", req.Name, strings.Join(names(found), ", "))
		}
	}
	return d.detachAll(found, req)
}

// Remove removes the attachment with this name and its publishes. It asks no container
// engine, because the engine may wait for the caller. It is not an error if there is
// none. Returns a Fault with code Conflict if files declare the attachment.
func (d *Daemon) Remove(name string) error {
	return d.steps.Do(d.state.Life, func() error {
		_, err := d.detachAll(d.attachments(func(a model.Attachment) bool { return a.Name == name }),
			api.DetachRequest{Name: name})
		return err
	})
}

// detachAll removes attachments for a request.
func (d *Daemon) detachAll(found []model.Attachment, req api.DetachRequest) (api.Result, error) {
	gone := map[string]bool{}
	for _, a := range found {
		if a.Origin.IsFile() {
			return api.Result{}, spec.OtherOrigin("attachment "+a.Name, a.Origin)
		}
		gone[a.Name] = true
	}
	if len(gone) == 0 {
		return api.Result{Notes: []string{fmt.Sprintf("there is no attachment %s: nothing to do", req)}}, nil
	}
	next := d.state.Desired().WithoutAttachments(gone)
	if req.DryRun {
		return d.applier.Plan(next)
	}
	if err := d.leases.Stop(names(found)...); err != nil {
		return api.Result{}, err
	}
	r := api.Result{Changed: true}
	for name := range gone {
		r.Attachments = append(r.Attachments, d.view(name)...)
		delete(d.state.Problems, name)
	}
	if err := d.applier.Settle(next); err != nil {
		return api.Result{}, fmt.Errorf("detach %s: %w", req, err)
	}
	d.state.Log.Info("detached", "attachment", req.String())
	return r, nil
}

// attachments returns the attachments for which chosen returns true.
func (d *Daemon) attachments(chosen func(model.Attachment) bool) []model.Attachment {
	all := slices.Clone(d.state.Desired().Attachments)
	return slices.DeleteFunc(all, func(a model.Attachment) bool { return !chosen(a) })
}

func names(all []model.Attachment) []string {
	var list []string
	for _, a := range all {
		list = append(list, a.Name)
	}
	return list
}

// refs returns a function that reports whether a reference is of the sandbox that the
// text names. A sandbox that no longer runs is matched by its name. If an attachment has
// the name, no sandbox is looked for: the engine that asks may be the one that answers.
func (d *Daemon) refs(ctx context.Context, text string) func(ref string) bool {
	canonical := text
	d.state.Lock()
	_, attached := d.state.Desired().Attachment(text)
	d.state.Unlock()
	if text != "" && !attached {
		if at, err := d.cfg.Sandboxes.Resolve(ctx, text); err == nil {
			canonical = at.Ref
		}
	}
	return func(ref string) bool {
		_, name, _ := strings.Cut(ref, ":")
		return ref == canonical || canonical == text && name == text
	}
}

// joinUndo joins an error and the error of undoing the failed change, if any.
func joinUndo(err, undo error) error {
	if undo == nil {
		return err
	}
	return errors.Join(err, fmt.Errorf("undo: %w", undo))
}
