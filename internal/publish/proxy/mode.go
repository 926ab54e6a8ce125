// Package proxy publishes a port via the user-space proxy. The code of the proxy
// is in internal/proxy. This package only plans it.
//
// Theory of operation. One process listens on every published port of the host
// and copies the bytes to the endpoint. TCP is spliced in the kernel. UDP is
// forwarded in batches, with one socket per client. Packets end at the host's
// stack. So the host's INPUT firewall applies, all local addresses work in the
// same way, and an IPv6 client reaches an IPv4 endpoint. The endpoint sees the
// host's address, unless a PROXY header carries the client's.
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

// Mode implements publish.Mode.
type Mode struct{}

// Name implements publish.Mode.
func (Mode) Name() model.Via { return model.ViaProxy }

// Carrier implements publish.Mode.
func (Mode) Carrier() model.Carrier { return model.CarrierUserSpace }

// Needs implements publish.Mode.
func (Mode) Needs() []plan.Feature { return nil }

// Validate implements publish.Mode.
func (Mode) Validate(p model.Publish) error {
	if p.ProxyProtocol != 0 && p.Proto != model.TCP {
		return fmt.Errorf("a PROXY header can be sent only before a TCP stream: leave it out for %s", p.Proto)
	}
	if p.Reset {
		return errors.New("the proxy ends its connections itself: leave reset out, or publish via ebpf")
	}
	return nil
}

// Reaches implements publish.Mode.
func (Mode) Reaches(a plan.Attachment) error { return publish.Sandboxed(a) }

// Shared implements publish.Mode. It returns nil: each publish plans all that it
// needs.
func (Mode) Shared([]plan.Attachment) plan.Plan { return nil }

// Publish implements publish.Mode.
func (Mode) Publish(p model.Publish, a plan.Attachment) plan.Plan {
	return plan.Plan{publish.Listener(p, a)}
}
