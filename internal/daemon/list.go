package daemon

import (
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// Attachments returns all attachments, sorted by name.
func (d *Daemon) Attachments() []api.View {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.view()
}

// views returns the attachments with these names, or all if there are none.
func (d *Daemon) views(names ...string) []api.View {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.view(names...)
}

func (s *state) view(names ...string) []api.View {
	reached := map[string]model.Endpoint{}
	for _, e := range s.full.Endpoints {
		reached[e.Name] = e
	}
	drivers := map[string]model.Driver{}
	for _, n := range s.desired.Networks {
		drivers[n.Name] = n.Driver
	}
	var all []api.View
	for _, a := range s.desired.Attachments {
		if len(names) > 0 && !slices.Contains(names, a.Name) {
			continue
		}
		v := api.View{Attachment: a, Driver: drivers[a.Network], Problem: s.problemOf(a),
			Publishes: s.published(a.Name)}
		e, up := reached[a.Name]
		if v.Status = statusOf(up, v.Problem); up {
			v.Endpoint = e
		}
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b api.View) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// published returns the publishes of an attachment, with the chosen modes.
func (s *state) published(name string) []api.PublishedView {
	var all []api.PublishedView
	for _, p := range s.desired.Publishes {
		if p.Endpoint != name {
			continue
		}
		v := api.PublishedView{Publish: p, Problem: s.problems[p.String()]}
		for _, reached := range s.full.Publishes {
			if reached.Endpoint == name && reached.Same(p) {
				v.Publish = reached
			}
		}
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b api.PublishedView) int { return a.Compare(b.Publish) })
	return all
}
