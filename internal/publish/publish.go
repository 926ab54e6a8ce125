// Package publish holds what all ways to publish share: the interface they
// fill and the families a publish answers on. A way turns a publish into a
// plan; it never touches the kernel.
package publish

import (
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
