package model

import (
	"net/netip"
	"slices"
)

// Mode is how a link that branches from a parent switches (ip-link(8)).
type Mode string

// The modes of macvlan and of ipvlan. The empty one is the driver's default.
const (
	ModeBridge   Mode = "bridge"
	ModePrivate  Mode = "private"
	ModeVEPA     Mode = "vepa"
	ModePassthru Mode = "passthru"

	ModeL2  Mode = "l2"
	ModeL3  Mode = "l3"
	ModeL3S Mode = "l3s"
)

// Overlay joins sandboxes of several hosts: a VXLAN over underlay networks.
type Overlay struct {
	// VNI is the VXLAN network identifier, 24 bits.
	VNI uint32 `json:"vni,omitempty"`
	// Port is the UDP port by which the hosts speak to each other: of VXLAN, or
	// of WireGuard where the overlay is encrypted. 0 means 4789 (RFC 7348), or
	// 51820.
	Port uint16 `json:"port,omitempty"`
	// Underlays name the host's links, or its addresses on them, that carry the
	// overlay; none means the one by which the peers are reached. Several share
	// the load of the peers.
	Underlays []string `json:"underlays,omitempty"`
	// Peers are the hosts of the overlay. A host knows itself by its address and
	// leaves itself out, so that one list serves all.
	Peers []Peer `json:"peers,omitempty"`
	// Group is a multicast group that finds the peers instead.
	Group netip.Addr `json:"group,omitzero"`
	// Encrypt carries the overlay in WireGuard. KeyFile holds the secret that
	// all hosts of the overlay share.
	Encrypt bool   `json:"encrypt,omitempty"`
	KeyFile string `json:"keyFile,omitempty"`
}

// IsZero reports whether nothing is said of an overlay.
func (o Overlay) IsZero() bool {
	return o.VNI == 0 && o.Port == 0 && len(o.Underlays) == 0 && len(o.Peers) == 0 && !o.Group.IsValid() && !o.Encrypt && o.KeyFile == ""
}

func (o Overlay) clone() Overlay {
	o.Underlays, o.Peers = slices.Clone(o.Underlays), slices.Clone(o.Peers)
	for i := range o.Peers {
		o.Peers[i].Further, o.Peers[i].Ranges = slices.Clone(o.Peers[i].Further), slices.Clone(o.Peers[i].Ranges)
		o.Peers[i].Endpoints = slices.Clone(o.Peers[i].Endpoints)
		for j := range o.Peers[i].Endpoints {
			o.Peers[i].Endpoints[j].Addresses = slices.Clone(o.Peers[i].Endpoints[j].Addresses)
		}
	}
	return o
}

// Peer is a host of an overlay.
type Peer struct {
	// Address is the peer's on an underlay.
	Address netip.Addr `json:"address"`
	// Further are its addresses on further underlays; what goes to its known
	// endpoints is spread over all.
	Further []netip.Addr `json:"further,omitempty"`
	// Ranges are the parts of the subnets that the peer leases addresses from,
	// one of each subnet. The first usable address of a range is the peer's own.
	Ranges []netip.Prefix `json:"ranges,omitempty"`
	// Endpoints are the sandboxes there, as far as they are known: nobody has
	// to ask for those.
	Endpoints []PeerEndpoint `json:"endpoints,omitempty"`
}

// PeerEndpoint is a sandbox of another host.
type PeerEndpoint struct {
	// Addresses holds at most one address of each family.
	Addresses []netip.Addr `json:"addresses"`
	// MAC is the hardware address, if the endpoint was given one of its own.
	MAC string `json:"mac,omitempty"`
}

// Underlay returns all the peer's addresses on underlays.
func (p Peer) Underlay() []netip.Addr { return append([]netip.Addr{p.Address}, p.Further...) }

// Route is a destination of a sandbox and its next hop.
type Route struct {
	To netip.Prefix `json:"to"`
	// Via is the next hop; the zero value means directly on the link.
	Via netip.Addr `json:"via,omitzero"`
}

// Limit bounds an endpoint's traffic, in bits a second; 0 means no bound.
type Limit struct {
	// Out bounds what the sandbox sends, In what it receives.
	Out uint64 `json:"out,omitempty"`
	In  uint64 `json:"in,omitempty"`
}

// Asks returns what a driver must know of the host's links to plan the network:
// each a link's name, an address of the host's on it, or an address of another
// host that is reached by it.
func (n Network) Asks() []string {
	var all []string
	if n.Parent != "" {
		all = append(all, n.Parent)
	}
	all = append(all, n.Overlay.Underlays...)
	for _, p := range n.Overlay.Peers {
		for _, a := range p.Underlay() {
			all = append(all, a.String())
		}
	}
	if n.Overlay.Group.IsValid() {
		all = append(all, n.Overlay.Group.String())
	}
	return all
}
