package model

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"
	"time"
)

// Attachment connects a running sandbox to a network, as a user requested.
type Attachment struct {
	// Endpoint's Sandbox is the path of the namespace while the sandbox runs.
	Endpoint
	// Ref names the sandbox as its user does: a container, a process, a path. It
	// identifies the sandbox again after a restart.
	Ref string `json:"ref"`
	// Namespace distinguishes the sandbox's namespace from a later one at the same
	// path. It is empty while the sandbox does not run.
	Namespace string `json:"namespace,omitempty"`
	// Keep applies the attachment again whenever the sandbox restarts. If it is
	// false, the attachment is removed with the sandbox.
	Keep bool `json:"keep,omitempty"`
	// DHCP is true if addresses come from a DHCP server of the network. Lease is
	// the latest lease.
	DHCP  bool  `json:"dhcp,omitempty"`
	Lease Lease `json:"lease,omitzero"`
	// NeedsRestart is true if a workload ran before its ports were published.
	NeedsRestart bool `json:"needsRestart,omitempty"`
	// Private is true if the network was made for this attachment. It is then
	// removed with the attachment.
	Private bool `json:"private,omitempty"`
	// Engine identifies the process of the container engine that requested the
	// attachment, in the form of sandbox.ProcessID. It is empty if unknown.
	Engine string `json:"engine,omitempty"`
	// Origin names who created the attachment. Only the same origin may change or
	// remove it.
	Origin Origin `json:"origin,omitempty"`
}

// Lease is the configuration that a DHCP server gave to an attachment.
type Lease struct {
	Prefixes []netip.Prefix `json:"prefixes,omitempty"`
	Gateways []netip.Addr   `json:"gateways,omitempty"`
	Routes   []Route        `json:"routes,omitempty"`
	// Ends is when the lease ends, as a time since the host's boot (alarm.SinceBoot), in nanoseconds. It is 0 if the
	// lease never ends, or if a version stored it that did not know this field.
	Ends time.Duration `json:"ends,omitempty"`
}

// IsZero reports whether there is no lease.
func (l Lease) IsZero() bool {
	return len(l.Prefixes) == 0 && len(l.Gateways) == 0 && len(l.Routes) == 0
}

// Equal reports whether both leases are equal.
func (l Lease) Equal(o Lease) bool {
	return slices.Equal(l.Prefixes, o.Prefixes) && slices.Equal(l.Gateways, o.Gateways) &&
		slices.Equal(l.Routes, o.Routes) && l.Ends == o.Ends
}

func (l Lease) clone() Lease {
	return Lease{slices.Clone(l.Prefixes), slices.Clone(l.Gateways), slices.Clone(l.Routes), l.Ends}
}

// Leased returns the endpoint completed with the lease's values. Values that the
// user set are kept.
func (a Attachment) Leased() Endpoint {
	e := a.Endpoint
	if a.Lease.IsZero() {
		return e
	}
	e.Prefixes = slices.Concat(e.Prefixes, a.Lease.Prefixes)
	if len(e.Gateways) == 0 {
		e.Gateways = a.Lease.Gateways
	}
	e.Routes = slices.Clip(e.Routes)
	for _, r := range a.Lease.Routes {
		if !slices.ContainsFunc(e.Routes, func(o Route) bool { return o.To == r.To }) {
			e.Routes = append(e.Routes, r)
		}
	}
	return e
}

// Equal reports whether both attachments are equal.
func (a Attachment) Equal(o Attachment) bool {
	return a.Endpoint.Equal(o.Endpoint) && a.Ref == o.Ref && a.Namespace == o.Namespace &&
		a.Keep == o.Keep && a.DHCP == o.DHCP && a.Lease.Equal(o.Lease) && a.Private == o.Private &&
		a.NeedsRestart == o.NeedsRestart && a.Engine == o.Engine && a.Origin == o.Origin
}

// Equal reports whether both networks are equal.
func (n Network) Equal(o Network) bool {
	return n.Name == o.Name && n.Driver == o.Driver && slices.Equal(n.Subnets, o.Subnets) && n.MTU == o.MTU &&
		slices.Equal(n.FurtherRanges, o.FurtherRanges) && slices.Equal(n.Remote, o.Remote) && n.Drained == o.Drained &&
		n.Parent == o.Parent && slices.Equal(n.ParentAddresses, o.ParentAddresses) && n.Mode == o.Mode &&
		n.VLAN == o.VLAN && n.PKey == o.PKey && reflect.DeepEqual(n.Overlay, o.Overlay) &&
		n.Hairpin == o.Hairpin && n.Filter == o.Filter && n.Internal == o.Internal && n.Outbound == o.Outbound &&
		n.Flowtable == o.Flowtable && n.AllowOverlap == o.AllowOverlap && n.Origin == o.Origin
}

// Equal reports whether both endpoints are equal.
func (e Endpoint) Equal(o Endpoint) bool {
	return e.Name == o.Name && e.Network == o.Network && e.Sandbox == o.Sandbox && e.Interface == o.Interface &&
		slices.Equal(e.Addresses, o.Addresses) && e.MAC == o.MAC && slices.Equal(e.Prefixes, o.Prefixes) &&
		slices.Equal(e.Gateways, o.Gateways) && e.NoDefault == o.NoDefault && slices.Equal(e.Routes, o.Routes) &&
		e.Limit == o.Limit && e.Cgroup == o.Cgroup && e.Unpublished == o.Unpublished &&
		e.HostInterface == o.HostInterface
}

// Equal reports whether both publishes are equal.
func (p Publish) Equal(o Publish) bool {
	return p.Same(o) && p.Endpoint == o.Endpoint && p.Via == o.Via && p.Ports == o.Ports &&
		p.ProxyProtocol == o.ProxyProtocol && slices.Equal(p.Promises, o.Promises) && p.Reset == o.Reset &&
		p.Origin == o.Origin
}

// Same reports whether both have the same host address, ports and protocol.
func (p Publish) Same(o Publish) bool {
	return p.Proto == o.Proto && p.HostAddr == o.HostAddr && p.HostPorts == o.HostPorts
}

// Compare orders publishes by their endpoint, ports, protocol and address.
func (p Publish) Compare(o Publish) int {
	return cmp.Or(cmp.Compare(p.Endpoint, o.Endpoint), cmp.Compare(p.HostPorts.First, o.HostPorts.First),
		cmp.Compare(p.HostPorts.Last, o.HostPorts.Last), cmp.Compare(p.Proto, o.Proto), p.HostAddr.Compare(o.HostAddr))
}
