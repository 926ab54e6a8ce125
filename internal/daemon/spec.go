package daemon

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/model"
)

// Spec is what a set of files declares for a host.
type Spec struct {
	// Set is the name of the set of files. It is empty for files without a set name.
	Set         string          `json:"set,omitempty"`
	Networks    []model.Network `json:"networks,omitempty"`
	Attachments []Declared      `json:"attachments,omitempty"`
	// Services need no Origin.
	Services []model.VirtualService `json:"services,omitempty"`
}

// Declared is an attachment that waits for its sandbox whenever that does not run.
type Declared struct {
	// Endpoint.Sandbox names the sandbox as the user writes it.
	model.Endpoint
	// Device, instead of a network, is a device of the host to move into the sandbox.
	Device string `json:"device,omitempty"`
	PKey   uint16 `json:"pkey,omitempty"`
	DHCP   bool   `json:"dhcp,omitempty"`
	// Publishes need no Endpoint.
	Publishes []model.Publish `json:"publishes,omitempty"`
}

func (a Declared) request(by model.Origin) AttachRequest {
	return AttachRequest{Endpoint: a.Endpoint, Device: a.Device, PKey: a.PKey, DHCP: a.DHCP, Keep: true, Origin: by}
}

// Mistake is an error in a Spec.
type Mistake struct {
	// At is the part with the mistake, e.g. networks[0] or
	// attachments[1].publishes[0]. It is empty if the mistake is about the whole Spec.
	At string `json:"at,omitempty"`
	// Text says what is wrong and what to do.
	Text string `json:"text"`
}

// Mistakes is the error of an invalid Spec. It contains all mistakes.
type Mistakes []Mistake

// Error returns one line per mistake.
func (m Mistakes) Error() string {
	var lines []string
	for _, one := range m.Unwrap() {
		lines = append(lines, one.Error())
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns one error per mistake.
func (m Mistakes) Unwrap() []error {
	all := make([]error, len(m))
	for i, one := range m {
		text := one.Text
		if one.At != "" {
			text = one.At + ": " + one.Text
		}
		all[i] = errors.New(text)
	}
	return all
}

// Action is what a change does to an object.
type Action string

// The actions.
const (
	Created Action = "created"
	Changed Action = "changed"
	Removed Action = "removed"
)

// Change is the change of one network, attachment, publish or service.
type Change struct {
	Action Action `json:"action"`
	// Kind is network, attachment, publish or service.
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// String returns the change in the form "network web: created".
func (c Change) String() string { return fmt.Sprintf("%s %s: %s", c.Kind, c.Name, c.Action) }

// changes lists the differences between two desired states: networks, attachments,
// publishes, services.
func changes(before, next model.Desired) []Change {
	return slices.Concat(
		diff("network", before.Networks, next.Networks, func(n model.Network) string { return n.Name }, model.Network.Equal),
		diff("attachment", before.Attachments, next.Attachments, func(a model.Attachment) string { return a.Name }, model.Attachment.Equal),
		diff("publish", before.Publishes, next.Publishes, publishName, model.Publish.Equal),
		diff("service", before.Services, next.Services, func(v model.VirtualService) string { return v.Name }, model.VirtualService.Equal))
}

// publishName returns the endpoint and the host side of a publish.
func publishName(p model.Publish) string {
	host, _, _ := strings.Cut(p.String(), " -> ")
	return p.Endpoint + " " + host
}

func diff[T any](kind string, before, next []T, name func(T) string, equal func(a, b T) bool) []Change {
	var all []Change
	old := map[string]T{}
	for _, v := range before {
		old[name(v)] = v
	}
	stays := map[string]bool{}
	for _, v := range next {
		was, known := old[name(v)]
		stays[name(v)] = true
		switch {
		case !known:
			all = append(all, Change{Created, kind, name(v)})
		case !equal(was, v):
			all = append(all, Change{Changed, kind, name(v)})
		}
	}
	for _, v := range before {
		if !stays[name(v)] {
			all = append(all, Change{Removed, kind, name(v)})
		}
	}
	return all
}
