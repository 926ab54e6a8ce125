// Package publish holds what all ways to publish share: the interface they
// fill and the families a publish answers on. A way turns a publish into a
// plan; it never touches the kernel.
package publish

import (
	"net/netip"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/promise"
)

// Way is a way to lead a host port to an endpoint. All methods are pure.
type Way interface {
	// Name is the way's name in the model.
	Name() model.Via
	// Needs lists the kernel features without which it cannot work.
	Needs() []plan.Feature
	// Validate says what in the publish this way cannot do.
	Validate(model.Publish) error
	// Publish plans one publish to the endpoint that the attachment tells.
	Publish(model.Publish, plan.Attachment) plan.Plan
	// Promises answers every question of promise.Publish for endpoints of
	// the driver.
	Promises(model.Driver) promise.Set
}

// Hosts returns the host addresses to answer on, one for each family that
// the publish answers: the address asked for, or the unspecified one.
func Hosts(p model.Publish) []netip.Addr {
	if p.HostAddr.IsValid() {
		return []netip.Addr{p.HostAddr}
	}
	return []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
}

// Listener returns the proxy's listener for the publish on one host address.
// It leads to the endpoint's address of the same family where there is one,
// else to the other's.
func Listener(p model.Publish, host netip.Addr, a plan.Attachment) plan.Listener {
	target, ok := a.Address(host.Is4())
	if !ok {
		target, _ = a.Address(!host.Is4())
	}
	return plan.Listener{Proto: p.Proto, Host: host, Ports: p.HostPorts,
		Target: target, TargetPorts: p.Ports, ProxyProtocol: p.ProxyProtocol}
}
