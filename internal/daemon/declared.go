package daemon

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// State returns the objects that commands and files have created, as one Spec. Applying
// this Spec changes nothing. State omits objects of Docker. The notes name what a Spec
// cannot express.
func (d *Daemon) State() (Spec, []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return StoredState(d.desired.Clone())
}

// StoredState is State for the stored desired state of a daemon that does not run.
func StoredState(w model.Desired) (Spec, []string) {
	var spec Spec
	var notes []string
	for _, n := range w.Networks {
		if n.Origin != model.FromDocker && !isPrivateNetwork(w, n.Name) {
			n.Origin = ""
			spec.Networks = append(spec.Networks, n)
		}
	}
	for _, a := range w.Attachments {
		if a.Origin == model.FromDocker {
			continue
		}
		if _, err := sandbox.Expect(a.Ref); err != nil {
			notes = append(notes, fmt.Sprintf("attachment %s is left out: %v", a.Name, err))
			continue
		}
		spec.Attachments = append(spec.Attachments, declare(a, w))
	}
	for _, v := range w.Services {
		v.Origin = ""
		spec.Services = append(spec.Services, v)
	}
	slices.SortFunc(spec.Services, func(a, b model.VirtualService) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(spec.Networks, func(a, b model.Network) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(spec.Attachments, func(a, b Declared) int { return strings.Compare(a.Name, b.Name) })
	return spec, notes
}

// declare returns the attachment as a file declares it.
func declare(a model.Attachment, w model.Desired) Declared {
	c := Declared{Endpoint: a.Endpoint, DHCP: a.DHCP}
	c.Sandbox = a.Ref
	if a.DHCP {
		c.MAC = "" // the daemon chose it, and keeps it
	}
	if n, _ := (model.State{Networks: w.Networks}).Network(a.Network); a.Private {
		c.Network, c.Device, c.PKey = "", n.Parent, n.PKey
	}
	for _, p := range w.Publishes {
		if p.Endpoint == a.Name && p.Origin != model.FromDocker {
			p.Endpoint, p.Origin = "", ""
			c.Publishes = append(c.Publishes, p)
		}
	}
	slices.SortFunc(c.Publishes, model.Publish.Compare)
	return c
}
