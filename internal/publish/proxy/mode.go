// Package proxy publishes a port through the user-space proxy. The proxy's
// own code is in internal/proxy; here it is only planned.
//
// Theory of operation. One process listens on every published port of the
// host and carries the bytes to the endpoint: TCP is spliced in the kernel,
// UDP forwarded in batches with a socket for each client. Packets end at the
// host's stack, so the host's INPUT firewall is obeyed, every local address
// works alike, and an IPv6 client reaches an IPv4 endpoint; the endpoint sees
// the host's address unless a PROXY header tells it the client's.
//
//	client ── host's stack ── proxy process ── host's stack ── endpoint
//
// Kernel: any.
package proxy

import (
	"errors"
	"fmt"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/publish"
)

// Mode implements publish.Way.
type Mode struct{}

// Name implements publish.Way.
func (Mode) Name() model.Via { return model.ViaProxy }

// Needs implements publish.Way.
func (Mode) Needs() []plan.Feature { return nil }

// Validate implements publish.Way.
func (Mode) Validate(p model.Publish) error {
	if p.ProxyProtocol != 0 && p.Proto != model.TCP {
		return fmt.Errorf("a PROXY header goes ahead of a TCP stream: leave it out for %s", p.Proto)
	}
	if p.Reset {
		return errors.New("the proxy ends its connections itself: leave reset out, or publish via ebpf")
	}
	return nil
}

// Reaches implements publish.Way.
func (Mode) Reaches(a plan.Attachment) error { return publish.Sandboxed(a) }

// Shared implements publish.Way: every publish brings what it needs.
func (Mode) Shared([]plan.Attachment) plan.Plan { return nil }

// Publish implements publish.Way.
func (Mode) Publish(p model.Publish, a plan.Attachment) plan.Plan {
	return plan.Plan{publish.Listener(p, a)}
}
