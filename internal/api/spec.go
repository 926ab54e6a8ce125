package api

import (
	"errors"
	"fmt"
	"strings"

	"fairlead/internal/model"
	"fairlead/internal/model/gateway"
)

// MaxSpec is the size of the largest request with a Spec, in bytes: about 45,000 routers of the
// gateway.
const MaxSpec = 32 << 20

// Spec is what a set of files declares for a host.
type Spec struct {
	// Set is the name of the set of files. It is empty for files without a set name.
	Set         string          `json:"set,omitempty"`
	Networks    []model.Network `json:"networks,omitempty"`
	Attachments []Declared      `json:"attachments,omitempty"`
	// Addresses are virtual addresses that the cluster shall have.
	Addresses []ClusterAddressSpec `json:"addresses,omitempty"`
	// Services need no Origin.
	Services []model.VirtualService `json:"services,omitempty"`
	// ClusterServices are those of the cluster. They need no Origin, and the Set must have a name.
	ClusterServices []ClusterService `json:"clusterServices,omitempty"`
	// Gateway needs no Origin. It is nil if the files declare none.
	Gateway *model.Gateway `json:"gateway,omitempty"`
	// ClusterGateway has the objects of the gateway that belong to the cluster. Set must have a name. Nil is
	// the same as an empty one.
	ClusterGateway *gateway.Config `json:"clusterGateway,omitempty"`
	// Adopt makes declared objects that commands have created those of the set, also if they differ. Without
	// it, only those that are as declared become the set's.
	Adopt bool `json:"adopt,omitempty"`
	// Edit, if not nil, means that a user has edited objects that commands have created. They stay those
	// of commands. Set must be empty then.
	Edit *Edit `json:"edit,omitempty"`
}

// Edit has objects as they were before a user edited them. Those that the Spec has no more are
// removed. It is a conflict if one of them has changed meanwhile.
type Edit struct {
	Networks    []model.Network        `json:"networks,omitempty"`
	Attachments []Declared             `json:"attachments,omitempty"`
	Services    []model.VirtualService `json:"services,omitempty"`
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

// Mistake is an error in a Spec.
type Mistake struct {
	// At is the part with the mistake, e.g. networks[0], attachments[1].publishes[0] or
	// gateway.http.routers.shop. It is empty if the mistake is about the whole Spec.
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
	// Adopted objects were created by a command, and now belong to a set of files. The host does not change.
	Adopted Action = "adopted"
)

// Change is the change of one network, attachment, publish, service or part of the gateway.
type Change struct {
	Action Action `json:"action"`
	// Kind is network, attachment, publish, service or, for example, gateway router.
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// String returns the change in the form "network web: created".
func (c Change) String() string { return fmt.Sprintf("%s %s: %s", c.Kind, c.Name, c.Action) }
