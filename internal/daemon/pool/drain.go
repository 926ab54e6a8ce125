package pool

import (
	"net/netip"
	"time"

	"fairlead/internal/model"
)

// Drain is the drain of a real server: it gets no new flows and keeps the open ones,
// until they end or a deadline passes.
type Drain struct {
	// Cause is the reason.
	Cause string    `json:"cause"`
	Since time.Time `json:"since"`
	// Deadline ends the drain even if flows are open. Zero is no deadline.
	Deadline time.Time `json:"deadline,omitzero"`
	// Ended is when the drain ended; zero while it is in progress.
	Ended time.Time `json:"ended,omitzero"`
	// Asked says that a command requested the drain: then only a command ends it.
	Asked bool `json:"asked,omitempty"`
	// Endpoint is the attachment of the real server; empty if it is not on this host.
	Endpoint string `json:"endpoint,omitempty"`
	// Leaving says that the server is no longer a member of the service. Real is the
	// server.
	Leaving bool             `json:"leaving,omitempty"`
	Real    model.RealServer `json:"real,omitzero"`
}

// Deadline returns when a drain that starts at since ends: after the requested time,
// or else after the service's usual time; zero if neither is set.
func Deadline(since time.Time, requested, usual time.Duration) time.Time {
	switch {
	case requested > 0:
		return since.Add(requested)
	case usual > 0:
		return since.Add(usual)
	}
	return time.Time{}
}

// DrainNote is the prefix of the keys of drains among the notes.
const DrainNote = "drain "

// Note returns the key of the note of a real server's drain.
func (k Key) Note() string { return DrainNote + k.Service + " " + k.At.String() }

// Key identifies a real server of a service.
type Key struct {
	Service string
	At      netip.AddrPort
}
