package daemon

import (
	"slices"
	"strings"

	"fairlead/internal/model"
)

// Status is the state of an attachment.
type Status string

// The states of an attachment.
const (
	// Up is an attachment that is applied.
	Up Status = "up"
	// Waiting is an attachment whose sandbox does not run.
	Waiting Status = "waiting"
	// Broken is an attachment that could not be applied.
	Broken Status = "failed"
	// NoDaemon is an attachment of a daemon that does not run: its state is unknown.
	NoDaemon Status = "no daemon"
	// Ended was stored by a daemon that does not run, and its sandbox has ended
	// since, or not started: no process answers at its published ports.
	Ended Status = "ended"
)

// View is an attachment with its state.
type View struct {
	// Attachment includes the leased and chosen values.
	model.Attachment
	Driver    model.Driver    `json:"driver"`
	Status    Status          `json:"status"`
	Problem   string          `json:"problem,omitempty"`
	Publishes []PublishedView `json:"publishes,omitempty"`
}

// PublishedView is a publish with the chosen publish mode.
type PublishedView struct {
	model.Publish
	Problem string `json:"problem,omitempty"`
}

// StoredViews returns the stored attachments of a daemon that does not run, sorted by
// name.
func StoredViews(w model.Desired) []View {
	drivers := map[string]model.Driver{}
	for _, n := range w.Networks {
		drivers[n.Name] = n.Driver
	}
	var all []View
	var scan processScan
	for _, a := range w.Attachments {
		v := View{Attachment: a, Driver: drivers[a.Network], Status: NoDaemon}
		if hasEnded(a, &scan) {
			v.Status = Ended
		}
		v.Endpoint = a.Leased()
		for _, p := range w.Publishes {
			if p.Endpoint == a.Name {
				v.Publishes = append(v.Publishes, PublishedView{Publish: p})
			}
		}
		slices.SortFunc(v.Publishes, func(a, b PublishedView) int { return a.Compare(b.Publish) })
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b View) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Attachments returns all attachments, sorted by name.
func (d *Daemon) Attachments() []View {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.view()
}

// views returns the attachments with these names, or all if there are none.
func (d *Daemon) views(names ...string) []View {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.view(names...)
}

func (d *Daemon) view(names ...string) []View {
	reached := map[string]model.Endpoint{}
	for _, e := range d.full.Endpoints {
		reached[e.Name] = e
	}
	drivers := map[string]model.Driver{}
	for _, n := range d.desired.Networks {
		drivers[n.Name] = n.Driver
	}
	var all []View
	for _, a := range d.desired.Attachments {
		if len(names) > 0 && !slices.Contains(names, a.Name) {
			continue
		}
		v := View{Attachment: a, Driver: drivers[a.Network], Problem: d.problemOf(a), Publishes: d.published(a.Name)}
		e, up := reached[a.Name]
		if v.Status = statusOf(up, v.Problem); up {
			v.Endpoint = e
		}
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b View) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// published returns the publishes of an attachment, with the chosen modes.
func (d *Daemon) published(name string) []PublishedView {
	var all []PublishedView
	for _, p := range d.desired.Publishes {
		if p.Endpoint != name {
			continue
		}
		v := PublishedView{Publish: p, Problem: d.problems[p.String()]}
		for _, reached := range d.full.Publishes {
			if reached.Endpoint == name && reached.Same(p) {
				v.Publish = reached
			}
		}
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b PublishedView) int { return a.Compare(b.Publish) })
	return all
}
