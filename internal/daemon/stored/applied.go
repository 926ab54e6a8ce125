package stored

import (
	"cmp"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/daemon/external"
	"fairlead/internal/model"
)

// Applied returns the views of the attachments with these names, or of all if there are none, sorted by name. full is
// the state that the host has, and problems has the reasons why attachments and publishes are not applied. leaseProblem
// returns why an attachment has no confirmed lease, or an empty text.
func Applied(w model.Desired, full model.State, problems map[string]string, leaseProblem func(name string) string,
	names ...string) []api.View {
	reached := map[string]model.Endpoint{}
	for _, e := range full.Endpoints {
		reached[e.Name] = e
	}
	drivers := map[string]model.Driver{}
	for _, n := range w.Networks {
		drivers[n.Name] = n.Driver
	}
	var all []api.View
	for _, a := range w.Attachments {
		if len(names) > 0 && !slices.Contains(names, a.Name) {
			continue
		}
		v := api.View{Attachment: a, Driver: drivers[a.Network],
			Problem:   cmp.Or(problems[a.Name], external.RestartProblem(a), leaseProblem(a.Name)),
			Publishes: published(w, full, problems, a.Name)}
		e, up := reached[a.Name]
		if v.Status = StatusOf(up, v.Problem); up {
			v.Endpoint = e
		}
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b api.View) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// published returns the publishes of an attachment, with the chosen modes.
func published(w model.Desired, full model.State, problems map[string]string, name string) []api.PublishedView {
	var all []api.PublishedView
	for _, p := range w.PublishesOf(name) {
		v := api.PublishedView{Publish: p, Problem: problems[p.String()]}
		for _, reached := range full.Publishes {
			if reached.Endpoint == name && reached.Same(p) {
				v.Publish = reached
			}
		}
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b api.PublishedView) int { return a.Compare(b.Publish) })
	return all
}

// StatusOf returns the status of an attachment that is up or not, and has a problem or none.
func StatusOf(up bool, problem string) api.Status {
	switch {
	case up:
		return api.Up
	case problem != "":
		return api.Broken
	}
	return api.Waiting
}
