package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/daemon/spec"
	"fairlead/internal/daemon/step"
	"fairlead/internal/model"
)

// Publish publishes ports of an attached sandbox. It changes a publish that already
// exists. CodeOf returns NotFound for its error if the target has no attachment,
// Invalid if it has several, PortTaken if another process uses a host port, and
// Conflict if another publish or service uses it, or files declare a publish that would
// change.
func (d *Daemon) Publish(ctx context.Context, req api.PublishRequest) (api.Result, error) {
	return d.changePublishes(ctx, req, func(name string) model.Desired {
		return spec.Publish(d.state.Desired(), name, req.Publishes)
	})
}

// Unpublish removes publishes, which it finds by their host addresses, ports and
// protocols. For a publish that does not exist it returns a note. Returns the same
// errors as Publish.
func (d *Daemon) Unpublish(ctx context.Context, req api.PublishRequest) (api.Result, error) {
	var notes []string
	r, err := d.changePublishes(ctx, req, func(name string) model.Desired {
		have := d.state.Desired().PublishesOf(name)
		notes = nil
		for _, p := range req.Publishes {
			if !slices.ContainsFunc(have, p.Same) {
				notes = append(notes, fmt.Sprintf("%s publishes nothing at %s/%s", name, p.HostPorts, p.Proto))
			}
		}
		return d.state.Desired().ReplacePublishes(name, spec.Among(req.Publishes), nil)
	})
	r.Notes = notes
	return r, err
}

// changePublishes applies the desired state that the function to returns for the
// attachment's name.
func (d *Daemon) changePublishes(ctx context.Context, req api.PublishRequest,
	to func(name string) model.Desired) (api.Result, error) {
	refs := d.refs(ctx, req.Target)
	return step.For(ctx, d.steps, func() (api.Result, error) { return d.replacePublishes(req, refs, to) })
}

// replacePublishes is one attempt of changePublishes. refs is that of the target.
func (d *Daemon) replacePublishes(req api.PublishRequest, refs func(string) bool,
	to func(name string) model.Desired) (api.Result, error) {
	a, err := d.target(req.Target, refs)
	if err != nil {
		return api.Result{}, err
	}
	next := to(a.Name)
	have := d.state.Desired().Publishes
	if err := spec.KeepsDeclared(have, next.Publishes); err != nil {
		return api.Result{}, err
	}
	if req.DryRun {
		return d.applier.Plan(next)
	}
	if !d.forget(a.Name, req.Publishes) && slices.EqualFunc(next.Publishes, have, model.Publish.Equal) {
		return api.Result{Attachments: d.view(a.Name)}, nil
	}
	if err := d.applier.Settle(next); err != nil {
		return api.Result{}, fmt.Errorf("change the publishes of %s: %w", a.Name, err)
	}
	d.state.Log.Info("publishes changed", "attachment", a.Name)
	return api.Result{Attachments: d.view(a.Name), Changed: true}, nil
}

// forget deletes the problems of an attachment's publishes, which will be tried again. It reports whether there were any.
func (d *Daemon) forget(attachment string, publishes []model.Publish) bool {
	before := len(d.state.Problems)
	for _, p := range publishes {
		p.Endpoint = attachment
		delete(d.state.Problems, p.String())
	}
	return len(d.state.Problems) < before
}

// target returns the attachment with the name, or the only one of the sandbox.
func (d *Daemon) target(text string, refs func(string) bool) (model.Attachment, error) {
	var names []string
	var found model.Attachment
	for _, a := range d.state.Desired().Attachments {
		if a.Name == text {
			return a, nil
		}
		if refs(a.Ref) {
			names, found = append(names, a.Name), a
		}
	}
	switch len(names) {
	case 0:
		return found, api.Faultf(api.NotFound,
			"there is no attachment of %s: attach it first (`fairlead attach`); `fairlead ls` lists the attachments",
			text)
	case 1:
		return found, nil
	}
	return found, api.Faultf(api.Invalid, "%s has several attachments: name one of %s", text, strings.Join(names, ", "))
}
