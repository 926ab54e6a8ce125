package model

import (
	"cmp"
	"slices"
)

// Attachment is a running sandbox that somebody has attached to a network.
type Attachment struct {
	// Endpoint's Sandbox is the path of the namespace for as long as the
	// sandbox lives.
	Endpoint
	// Ref names the sandbox as its user does and finds it again when it comes
	// back: a container, a process, a path.
	Ref string `json:"ref"`
	// Namespace tells the sandbox's namespace from any other that comes to its
	// path later; empty while the sandbox is away.
	Namespace string `json:"namespace,omitempty"`
	// Keep applies the attachment again whenever its sandbox comes back,
	// instead of forgetting it with the sandbox.
	Keep bool `json:"keep,omitempty"`
	// DHCP fills Prefixes, Gateways and Routes by leases.
	DHCP bool `json:"dhcp,omitempty"`
	// Own says that the network was made for this attachment and goes with it.
	Own bool `json:"own,omitempty"`
}

// Equal reports whether nothing differs.
func (a Attachment) Equal(o Attachment) bool {
	return a.Endpoint.Equal(o.Endpoint) && a.Ref == o.Ref && a.Namespace == o.Namespace &&
		a.Keep == o.Keep && a.DHCP == o.DHCP && a.Own == o.Own
}

// Wishes are what users have asked of a host one by one, for sandboxes that
// come and go.
type Wishes struct {
	Networks    []Network    `json:"networks,omitempty"`
	Attachments []Attachment `json:"attachments,omitempty"`
	// Publishes are of attachments.
	Publishes []Publish `json:"publishes,omitempty"`
}

// Clone returns a copy that shares nothing with w.
func (w Wishes) Clone() Wishes {
	s := State{Networks: w.Networks, Publishes: w.Publishes}.Clone()
	c := Wishes{Networks: s.Networks, Attachments: slices.Clone(w.Attachments), Publishes: s.Publishes}
	for i := range c.Attachments {
		c.Attachments[i].Endpoint = c.Attachments[i].Endpoint.clone()
	}
	return c
}

// Equal reports whether nothing differs.
func (n Network) Equal(o Network) bool {
	return n.Name == o.Name && n.Driver == o.Driver && slices.Equal(n.Subnets, o.Subnets) && n.MTU == o.MTU &&
		n.Parent == o.Parent && n.Mode == o.Mode && n.VLAN == o.VLAN && n.PKey == o.PKey && n.Overlay.equal(o.Overlay) &&
		n.Hairpin == o.Hairpin && n.Filter == o.Filter && n.Internal == o.Internal
}

func (o Overlay) equal(p Overlay) bool {
	return o.VNI == p.VNI && o.Port == p.Port && slices.Equal(o.Underlays, p.Underlays) &&
		slices.EqualFunc(o.Peers, p.Peers, func(a, b Peer) bool {
			return a.Address == b.Address && slices.Equal(a.Endpoints, b.Endpoints)
		}) && o.Group == p.Group && o.Encrypt == p.Encrypt && o.KeyFile == p.KeyFile
}

// Equal reports whether nothing differs.
func (e Endpoint) Equal(o Endpoint) bool {
	return e.Name == o.Name && e.Network == o.Network && e.Sandbox == o.Sandbox && e.Interface == o.Interface &&
		slices.Equal(e.Addresses, o.Addresses) && e.MAC == o.MAC && slices.Equal(e.Prefixes, o.Prefixes) &&
		slices.Equal(e.Gateways, o.Gateways) && e.NoDefault == o.NoDefault && slices.Equal(e.Routes, o.Routes) &&
		e.Limit == o.Limit && e.Cgroup == o.Cgroup && e.Unlisted == o.Unlisted
}

// Equal reports whether nothing differs.
func (p Publish) Equal(o Publish) bool {
	return p.Same(o) && p.Endpoint == o.Endpoint && p.Via == o.Via && p.Ports == o.Ports &&
		p.ProxyProtocol == o.ProxyProtocol && slices.Equal(p.Promises, o.Promises) && p.Reset == o.Reset
}

// Same reports whether both are of the same host address, ports and protocol.
func (p Publish) Same(o Publish) bool {
	return p.Proto == o.Proto && p.HostAddr == o.HostAddr && p.HostPorts == o.HostPorts
}

// Compare orders publishes by their endpoint, ports, protocol and address.
func (p Publish) Compare(o Publish) int {
	return cmp.Or(cmp.Compare(p.Endpoint, o.Endpoint), cmp.Compare(p.HostPorts.First, o.HostPorts.First),
		cmp.Compare(p.HostPorts.Last, o.HostPorts.Last), cmp.Compare(p.Proto, o.Proto), p.HostAddr.Compare(o.HostAddr))
}
