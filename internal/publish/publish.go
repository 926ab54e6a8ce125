// Package publish has the interface that every publish mode implements, and what
// all modes share. A mode turns a publish into a plan. It never changes the
// kernel.
package publish

import (
	"errors"
	"net/netip"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/promise"
)

// Mode makes a host port reach an endpoint. All methods are pure functions of
// their arguments.
type Mode interface {
	// Name returns the mode's name in the model.
	Name() model.Via
	// Carrier returns what brings packets to endpoints. Other packages depend on it: the counters, the table of
	// threats, explanations and the laboratory.
	Carrier() model.Carrier
	// Needs lists the kernel features without which it cannot work.
	Needs() []plan.Feature
	// Validate returns an error if the mode does not support a setting of the
	// publish.
	Validate(model.Publish) error
	// Reaches returns an error if the mode cannot reach an endpoint with that
	// attachment.
	Reaches(plan.Attachment) error
	// Shared plans what all publishes of the mode share, from the attachments of
	// all endpoints of the host.
	Shared([]plan.Attachment) plan.Plan
	// Publish plans one publish to the endpoint with that attachment.
	Publish(model.Publish, plan.Attachment) plan.Plan
	// Promises answers every question of promise.Publish for endpoints of the
	// driver. It returns nil if the mode cannot publish them.
	Promises(model.Driver) promise.Set
}

// Sandboxed implements Reaches for the modes that publish ports of a sandbox with
// its own network namespace.
func Sandboxed(a plan.Attachment) error {
	if a.Closed != "" {
		return errors.New(a.Closed)
	}
	if a.Link == "" {
		return errors.New("the endpoint's driver offers nothing to publish: a workload of driver host listens on the host itself (publish it via socket), and driver none has no network")
	}
	return nil
}

// OfSandboxes returns s if packets reach the driver's sandboxes through the host. It
// returns nil if not.
func OfSandboxes(d model.Driver, s promise.Set) promise.Set {
	if d.Traits().NoLink || d.Traits().MovesDevice {
		return nil
	}
	return s
}

// Hosts returns the host addresses of a publish: its HostAddr, or if that is not
// set, the unspecified address of each family.
func Hosts(p model.Publish) []netip.Addr {
	if p.HostAddr.IsValid() {
		return []netip.Addr{p.HostAddr}
	}
	return []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
}

// Listener returns the proxy's listener for the publish: one socket per port, for
// one or both families. The target is the endpoint's address in the family of
// the host address, if it has one, and its address in the other family if not. A
// socket for clients of both families has the IPv4 address as target, if there is
// one.
func Listener(p model.Publish, a plan.Attachment) plan.Listener {
	v4 := !p.HostAddr.Is6()
	target, ok := a.Address(v4)
	if !ok {
		target, _ = a.Address(!v4)
	}
	return plan.Listener{Proto: p.Proto, Host: p.HostAddr, Ports: p.HostPorts,
		Target: target, TargetPorts: p.Ports, ProxyProtocol: p.ProxyProtocol}
}
