package model

import (
	"net/netip"
	"slices"
)

// Mode is the mode of a macvlan or ipvlan link (ip-link(8)).
type Mode string

// The modes of macvlan and ipvlan. The empty one is the driver's default.
const (
	ModeBridge   Mode = "bridge"
	ModePrivate  Mode = "private"
	ModeVEPA     Mode = "vepa"
	ModePassthru Mode = "passthru"

	ModeL2  Mode = "l2"
	ModeL3  Mode = "l3"
	ModeL3S Mode = "l3s"
)

// Modes returns the modes of macvlan, then those of ipvlan.
func Modes() []Mode {
	return []Mode{ModeBridge, ModePrivate, ModeVEPA, ModePassthru, ModeL2, ModeL3, ModeL3S}
}

// Overlay connects sandboxes of several hosts: a VXLAN over underlay networks.
type Overlay struct {
	// VNI is the VXLAN network identifier, 24 bits.
	VNI uint32 `json:"vni,omitempty"`
	// Port is the UDP port between the hosts: of VXLAN, or of WireGuard if the
	// overlay is encrypted. 0 means 4789 (RFC 7348) or 51820.
	Port uint16 `json:"port,omitempty"`
	// Underlays are the host's links that carry the overlay, or the host's
	// addresses on them. Empty means the link of the route to the peers. Several
	// underlays share the traffic.
	Underlays []string `json:"underlays,omitempty"`
	// Peers are the hosts of the overlay. A host ignores the entry with its own
	// address, so all hosts can use the same list.
	Peers []Peer `json:"peers,omitempty"`
	// Group is a multicast group that discovers the peers. It replaces Peers.
	Group netip.Addr `json:"group,omitzero"`
	// Encrypt carries the overlay in WireGuard. KeyFile contains the secret that
	// all hosts of the overlay share, or this host's private key if the peers have
	// public keys.
	Encrypt bool   `json:"encrypt,omitempty"`
	KeyFile string `json:"keyFile,omitempty"`
	// ByRange forwards by the peers' ranges: each address of a range is on that peer,
	// unless another peer lists it as an endpoint. Nothing is flooded and nothing is
	// learned. The network has one IPv4 subnet.
	ByRange bool `json:"byRange,omitempty"`
	// UnderlayMTU is the size of the largest packet that all hosts send to each other, in bytes. 0 means
	// that this host's links and routes decide; they also decide if they carry less.
	UnderlayMTU int `json:"underlayMTU,omitempty"`
}

// IsZero reports whether no overlay is configured.
func (o Overlay) IsZero() bool {
	return o.VNI == 0 && o.Port == 0 && len(o.Underlays) == 0 && len(o.Peers) == 0 && !o.Group.IsValid() &&
		!o.Encrypt && o.KeyFile == "" && !o.ByRange && o.UnderlayMTU == 0
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
	// Address is the peer's address on an underlay.
	Address netip.Addr `json:"address"`
	// Further are the peer's addresses on additional underlays. Traffic to its
	// known endpoints is spread over all addresses.
	Further []netip.Addr `json:"further,omitempty"`
	// Ranges are the parts of the subnets from which the peer leases addresses, at
	// least one per subnet. The peer itself has the first usable address of the first
	// range in each subnet.
	Ranges []netip.Prefix `json:"ranges,omitempty"`
	// PublicKey is the peer's WireGuard key, base64. Either all peers of an encrypted
	// overlay have one, this host too, or none.
	PublicKey string `json:"publicKey,omitempty"`
	// Endpoints are the known sandboxes on the peer. They need no ARP or neighbour
	// discovery.
	Endpoints []PeerEndpoint `json:"endpoints,omitempty"`
}

// PeerEndpoint is a sandbox of another host.
type PeerEndpoint struct {
	// Addresses holds at most one address per family.
	Addresses []netip.Addr `json:"addresses"`
	// MAC is the hardware address, if it was set for the endpoint.
	MAC string `json:"mac,omitempty"`
}

// Underlay returns all addresses of the peer on underlays.
func (p Peer) Underlay() []netip.Addr { return append([]netip.Addr{p.Address}, p.Further...) }

// Route is a destination with its next hop.
type Route struct {
	To netip.Prefix `json:"to"`
	// Via is the next hop; the zero value means directly on the link.
	Via netip.Addr `json:"via,omitzero"`
}

// Limit limits an endpoint's traffic, in bits per second; 0 means no limit.
type Limit struct {
	// Out limits what the sandbox sends, In what it receives.
	Out uint64 `json:"out,omitempty"`
	In  uint64 `json:"in,omitempty"`
}

// Asks returns the questions about the host's links that a driver needs answered to
// plan the network. Each is a link's name, an address of the host on the link, or
// an address of another host that is reached through the link.
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
	for _, r := range n.Remote {
		all = append(all, r.Via.String())
	}
	if n.Overlay.Group.IsValid() {
		all = append(all, n.Overlay.Group.String())
	}
	return all
}
