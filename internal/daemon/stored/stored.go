// Package stored shows the desired state: as it is stored, also of a daemon that does not run, and as it is applied.
package stored

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/daemon/external"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// Spec returns the objects that commands and files have created, as one Spec. Applying
// this Spec makes them objects of its set, and changes nothing else. It omits objects of
// container engines and of the cluster. The notes name what a Spec cannot express.
func Spec(w model.Desired) (api.Spec, []string) {
	return specOf(w, func(by model.Origin) bool { return by == model.FromCommand || by.IsFile() })
}

// Editable returns the objects that commands have created, as Spec does.
func Editable(w model.Desired) (api.Spec, []string) {
	return specOf(w, func(by model.Origin) bool { return by == model.FromCommand })
}

// specOf returns the objects of some origins.
func specOf(w model.Desired, of func(model.Origin) bool) (api.Spec, []string) {
	var spec api.Spec
	var notes []string
	for _, n := range w.Networks {
		if of(n.Origin) && !w.PrivateNetwork(n.Name) {
			n.Origin = ""
			spec.Networks = append(spec.Networks, n)
		}
	}
	for _, a := range w.Attachments {
		if !of(a.Origin) {
			continue
		}
		if _, err := sandbox.Expect(a.Ref); err != nil {
			notes = append(notes, fmt.Sprintf("attachment %s is left out: %v", a.Name, err))
			continue
		}
		spec.Attachments = append(spec.Attachments, declare(a, w, of))
	}
	for _, v := range w.Services {
		if of(v.Origin) {
			v.Origin = ""
			spec.Services = append(spec.Services, v)
		}
	}
	if w.Gateway != nil && of(w.Gateway.Origin) {
		g := *w.Gateway
		g.Origin, spec.Gateway = "", &g
	}
	slices.SortFunc(spec.Services, func(a, b model.VirtualService) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(spec.Networks, func(a, b model.Network) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(spec.Attachments, func(a, b api.Declared) int { return strings.Compare(a.Name, b.Name) })
	return spec, notes
}

// declare returns the attachment as a file declares it, with the publishes of some origins.
func declare(a model.Attachment, w model.Desired, of func(model.Origin) bool) api.Declared {
	c := api.Declared{Endpoint: a.Endpoint, DHCP: a.DHCP}
	c.Sandbox = a.Ref
	if a.DHCP {
		c.MAC = "" // the daemon chose it, and keeps it
	}
	if n, _ := w.Network(a.Network); a.Private {
		c.Network, c.Device, c.PKey = "", n.Parent, n.PKey
	}
	for _, p := range w.Publishes {
		if p.Endpoint == a.Name && of(p.Origin) {
			p.Endpoint, p.Origin = "", ""
			c.Publishes = append(c.Publishes, p)
		}
	}
	slices.SortFunc(c.Publishes, model.Publish.Compare)
	return c
}

// Views returns the stored attachments of a daemon that does not run, sorted by
// name.
func Views(w model.Desired) []api.View {
	drivers := map[string]model.Driver{}
	for _, n := range w.Networks {
		drivers[n.Name] = n.Driver
	}
	var all []api.View
	var scan external.Scan
	for _, a := range w.Attachments {
		v := api.View{Attachment: a, Driver: drivers[a.Network], Status: api.NoDaemon}
		if external.HasEnded(a, &scan) {
			v.Status = api.Ended
		}
		v.Endpoint = a.Leased()
		for _, p := range w.Publishes {
			if p.Endpoint == a.Name {
				v.Publishes = append(v.Publishes, api.PublishedView{Publish: p})
			}
		}
		slices.SortFunc(v.Publishes, func(a, b api.PublishedView) int { return a.Compare(b.Publish) })
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b api.View) int { return strings.Compare(a.Name, b.Name) })
	return all
}
