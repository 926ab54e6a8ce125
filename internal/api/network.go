package api

import "net/netip"

// PeerPathView is the result of the check of an overlay's path to another host.
type PeerPathView struct {
	// Peer is the other host's address in the network, Remote its address on the
	// underlay.
	Peer   netip.Addr `json:"peer"`
	Remote netip.Addr `json:"remote"`
	// Problems are the problems found, each with what to do.
	Problems []string `json:"problems,omitempty"`
}
