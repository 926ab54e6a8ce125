// Package api contains the values that a daemon and its clients exchange: requests, results,
// views of the state, counters, events and errors. Their JSON is the format of the
// administrator's API.
package api

import (
	"slices"

	"fairlead/internal/model"
)

// AttachRequest is the request to attach a running sandbox. Values that its Endpoint
// leaves empty are chosen once, and stay when the request is repeated.
type AttachRequest struct {
	// Endpoint.Sandbox names the sandbox: a container, a PID, a name of `ip netns`, or
	// the path of a namespace.
	model.Endpoint
	// Device, instead of a network, is a device of the host to move into the sandbox:
	// its name or its PCI address. PKey creates an InfiniBand child of it.
	Device string `json:"device,omitempty"`
	PKey   uint16 `json:"pkey,omitempty"`
	// Keep applies the attachment again whenever the sandbox comes back. It is always
	// set for a device. A sandbox that is named by a process cannot come back.
	Keep bool `json:"keep,omitempty"`
	// DHCP requests addresses from a DHCP server of the network.
	DHCP bool `json:"dhcp,omitempty"`
	// Publishes are ports to publish in addition to those that the attachment publishes
	// already. They need no Endpoint.
	Publishes []model.Publish `json:"publishes,omitempty"`
	// DryRun returns the plan and changes nothing.
	DryRun bool `json:"dryRun,omitempty"`
	// Origin names who makes the request: a command, a set of files or Docker.
	Origin model.Origin `json:"-"`
}

// Result is the result of a request.
type Result struct {
	// Attachments are the attachments that the request was about, in their new state.
	Attachments []View `json:"attachments,omitempty"`
	// Changed reports whether there was anything to change.
	Changed bool `json:"changed"`
	// Notes are messages for the user.
	Notes []string `json:"notes,omitempty"`
	// Plan is what a dry run would do, as shell commands.
	Plan string `json:"plan,omitempty"`
	// Services are the virtual services that the request was about.
	Services []ServiceView `json:"services,omitempty"`
	// Changes are the changes of the desired state, if a Spec was applied.
	Changes []Change `json:"changes,omitempty"`
}

// DetachRequest names an attachment, or all attachments of a sandbox to a network.
type DetachRequest struct {
	Name    string `json:"name,omitempty"`
	Network string `json:"network,omitempty"`
	Sandbox string `json:"sandbox,omitempty"`
	DryRun  bool   `json:"dryRun,omitempty"`
}

// String returns what the request names.
func (r DetachRequest) String() string {
	if r.Name != "" {
		return r.Name
	}
	return r.Sandbox + " on " + r.Network
}

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

// PublishRequest is the request to publish or unpublish ports of an attached sandbox.
type PublishRequest struct {
	// Target is the name of an attachment, or a sandbox with exactly one attachment.
	Target string `json:"target"`
	// Publishes need no Endpoint.
	Publishes []model.Publish `json:"publishes"`
	DryRun    bool            `json:"dryRun,omitempty"`
}

// WrongViews returns the attachments that are broken, or have a publish with a problem.
func WrongViews(all []View) (wrong []View) {
	for _, v := range all {
		failed := slices.ContainsFunc(v.Publishes, func(p PublishedView) bool { return p.Problem != "" })
		if failed || v.Status == Broken {
			wrong = append(wrong, v)
		}
	}
	return wrong
}
