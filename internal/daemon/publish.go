package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// Publish publishes ports of an attached sandbox. It changes a publish that already
// exists. CodeOf returns NotFound for its error if the target has no attachment,
// Invalid if it has several, PortTaken if another process uses a host port, and
// Conflict if another publish or service uses it, or files declare a publish that would
// change.
func (d *Daemon) Publish(ctx context.Context, req api.PublishRequest) (api.Result, error) {
	return d.changePublishes(ctx, req, func(name string) []model.Publish {
		all := slices.Clone(d.desired.Publishes)
		for _, p := range req.Publishes {
			p.Endpoint = name
			i := slices.IndexFunc(all, func(o model.Publish) bool { return o.Endpoint == name && o.Same(p) })
			if i < 0 {
				all = append(all, p)
				continue
			}
			if same := p; p.Origin != all[i].Origin {
				if same.Origin = all[i].Origin; same.Equal(all[i]) {
					continue // its origin stays
				}
			}
			all[i] = p
		}
		return all
	})
}

// Unpublish removes publishes, which it finds by their host addresses, ports and
// protocols. For a publish that does not exist it returns a note. Returns the same
// errors as Publish.
func (d *Daemon) Unpublish(ctx context.Context, req api.PublishRequest) (api.Result, error) {
	var notes []string
	r, err := d.changePublishes(ctx, req, func(name string) []model.Publish {
		of := func(p model.Publish) bool { return p.Endpoint == name }
		for _, p := range req.Publishes {
			if !slices.ContainsFunc(d.desired.Publishes, func(o model.Publish) bool { return of(o) && o.Same(p) }) {
				notes = append(notes, fmt.Sprintf("%s publishes nothing at %s/%s", name, p.HostPorts, p.Proto))
			}
		}
		return slices.DeleteFunc(slices.Clone(d.desired.Publishes), func(p model.Publish) bool {
			return of(p) && slices.ContainsFunc(req.Publishes, p.Same)
		})
	})
	r.Notes = notes
	return r, err
}

// changePublishes sets the publishes to what the function to returns for the
// attachment's name.
func (d *Daemon) changePublishes(ctx context.Context, req api.PublishRequest, to func(name string) []model.Publish) (api.Result, error) {
	refs := d.refs(ctx, req.Target)
	d.mu.Lock()
	defer d.mu.Unlock()
	a, err := d.target(req.Target, refs)
	if err != nil {
		return api.Result{}, err
	}
	next := d.desired
	next.Publishes = to(a.Name)
	for _, p := range d.desired.Publishes {
		if p.Origin.IsFile() && !slices.ContainsFunc(next.Publishes, p.Equal) {
			return api.Result{}, otherOrigin("publish "+p.String(), p.Origin)
		}
	}
	if req.DryRun {
		text, changed, err := d.plan(next)
		return api.Result{Plan: text, Changed: changed}, err
	}
	if slices.EqualFunc(next.Publishes, d.desired.Publishes, model.Publish.Equal) {
		return api.Result{Attachments: d.view(a.Name)}, nil
	}
	for _, p := range req.Publishes {
		p.Endpoint = a.Name
		delete(d.problems, p.String())
	}
	if err := d.settle(next); err != nil {
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
			"there is no attachment of %s: attach it first (`fairlead attach`); `fairlead ls` lists the attachments", text)
	case 1:
		return found, nil
	}
	return found, api.Faultf(api.Invalid, "%s has several attachments: name one of %s", text, strings.Join(names, ", "))
}
