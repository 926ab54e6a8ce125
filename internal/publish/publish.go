// Package publish holds what all ways to publish share: the interface they
// fill and the families a publish answers on. A way turns a publish into a
// plan; it never touches the kernel.
package publish

import (
	"errors"
	"net/netip"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/promise"
)

// Mode is a way to lead a host port to an endpoint. All methods are pure.
type Mode interface {
	// Name is the way's name in the model.
	Name() model.Via
	// Needs lists the kernel features without which it cannot work.
	Needs() []plan.Feature
	// Validate says what in the publish this way cannot do.
	Validate(model.Publish) error
	// Reaches says why it cannot lead to an endpoint of that attachment.
	Reaches(plan.Attachment) error
	// Shared plans what all publishes of the way share, given the attachments
	// of all endpoints of the host.
	Shared([]plan.Attachment) plan.Plan
	// Publish plans one publish to the endpoint that the attachment tells.
	Publish(model.Publish, plan.Attachment) plan.Plan
	// Promises answers every question of promise.Publish for endpoints of
	// the driver; nil means that it cannot publish them.
	Promises(model.Driver) promise.Set
}

// Sandboxed is Reaches for the ways that lead to a sandbox with a network of
// its own.
func Sandboxed(a plan.Attachment) error {
	if a.Closed != "" {
		return errors.New(a.Closed)
	}
	if a.Link == "" {
		return errors.New("the endpoint's driver offers nothing to publish: a host workload listens on the host itself (publish it via socket), and none has no network")
	}
	return nil
}

// OfSandboxes returns the promises for a driver that leads to its sandboxes
// through the host, and nil for the others.
func OfSandboxes(d model.Driver, s promise.Set) promise.Set {
	if d == model.DriverHost || d == model.DriverNone || d == model.DriverDevice {
		return nil
	}
	return s
}

// Hosts returns the host addresses to answer on, one for each family: the
// address asked for, or the unspecified one.
func Hosts(p model.Publish) []netip.Addr {
	if p.HostAddr.IsValid() {
		return []netip.Addr{p.HostAddr}
	}
	return []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
}

// Listener returns the proxy's listener for the publish: one socket a port,
// whatever families it answers. It leads to the endpoint's address of the
// host address's family where there is one, else to the other's; clients of
// both families on one socket are led to the IPv4 address.
func Listener(p model.Publish, a plan.Attachment) plan.Listener {
	v4 := !p.HostAddr.Is6()
	target, ok := a.Address(v4)
	if !ok {
		target, _ = a.Address(!v4)
	}
	return plan.Listener{Proto: p.Proto, Host: p.HostAddr, Ports: p.HostPorts,
		Target: target, TargetPorts: p.Ports, ProxyProtocol: p.ProxyProtocol}
}
