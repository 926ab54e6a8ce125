package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/daemon/spec"
	"fairlead/internal/model"
)

// Publish publishes ports of an attached sandbox. It changes a publish that already
// exists. CodeOf returns NotFound for its error if the target has no attachment,
// Invalid if it has several, PortTaken if another process uses a host port, and
// Conflict if another publish or service uses it, or files declare a publish that would
// change.
func (d *Daemon) Publish(ctx context.Context, req api.PublishRequest) (api.Result, error) {
	return d.changePublishes(ctx, req, func(name string) model.Desired {
		have := d.desired.PublishesOf(name)
		var added []model.Publish
		for _, p := range req.Publishes {
			p.Endpoint = name
			asked := p
			i := slices.IndexFunc(have, p.Same)
			if i >= 0 {
				asked.Origin = have[i].Origin
			}
			if i >= 0 && asked.Equal(have[i]) {
				p = have[i] // its origin stays
			}
			added = append(slices.DeleteFunc(added, p.Same), p)
		}
		return d.desired.ReplacePublishes(name, among(added), added)
	})
}

// among returns a function that reports whether a publish has the host side of one of
// these.
func among(publishes []model.Publish) func(model.Publish) bool {
	return func(p model.Publish) bool { return slices.ContainsFunc(publishes, p.Same) }
}

// Unpublish removes publishes, which it finds by their host addresses, ports and
// protocols. For a publish that does not exist it returns a note. Returns the same
// errors as Publish.
func (d *Daemon) Unpublish(ctx context.Context, req api.PublishRequest) (api.Result, error) {
	var notes []string
	r, err := d.changePublishes(ctx, req, func(name string) model.Desired {
		have := d.desired.PublishesOf(name)
		notes = nil
		for _, p := range req.Publishes {
			if !slices.ContainsFunc(have, p.Same) {
				notes = append(notes, fmt.Sprintf("%s publishes nothing at %s/%s", name, p.HostPorts, p.Proto))
			}
		}
		return d.desired.ReplacePublishes(name, among(req.Publishes), nil)
	})
	r.Notes = notes
	return r, err
}

// changePublishes applies the desired state that the function to returns for the
// attachment's name.
func (d *Daemon) changePublishes(ctx context.Context, req api.PublishRequest,
	to func(name string) model.Desired) (r api.Result, err error) {
	refs := d.refs(ctx, req.Target)
	err = d.ports.Do(ctx, func() (err error) { r, err = d.replacePublishes(req, refs, to); return err })
	return r, err
}

// replacePublishes is one attempt of changePublishes. refs is that of the target.
func (d *Daemon) replacePublishes(req api.PublishRequest, refs func(string) bool,
	to func(name string) model.Desired) (api.Result, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, err := d.target(req.Target, refs)
	if err != nil {
		return api.Result{}, err
	}
	next := to(a.Name)
	for _, p := range d.desired.Publishes {
		if p.Origin.IsFile() && !slices.ContainsFunc(next.Publishes, p.Equal) {
			return api.Result{}, spec.OtherOrigin("publish "+p.String(), p.Origin)
		}
	}
	if req.DryRun {
		text, changed, err := d.applier.plan(next)
		return api.Result{Plan: text, Changed: changed}, err
	}
	if slices.EqualFunc(next.Publishes, d.desired.Publishes, model.Publish.Equal) {
		return api.Result{Attachments: d.view(a.Name)}, nil
	}
	for _, p := range req.Publishes {
		p.Endpoint = a.Name
		delete(d.problems, p.String())
	}
	if err := d.applier.settle(next); err != nil {
		return api.Result{}, fmt.Errorf("change the publishes of %s: %w", a.Name, err)
	}
	d.cfg.Log.Info("publishes changed", "attachment", a.Name)
	return api.Result{Attachments: d.view(a.Name), Changed: true}, nil
}

// target returns the attachment with the name, or the only one of the sandbox.
func (d *Daemon) target(text string, refs func(string) bool) (model.Attachment, error) {
	var names []string
	var found model.Attachment
	for _, a := range d.desired.Attachments {
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
