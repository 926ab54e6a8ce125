package api

import (
	"net/netip"
	"time"
)

// ClusterBGPPeer is a router to which nodes of the cluster announce addresses.
type ClusterBGPPeer struct {
	Address netip.Addr `json:"address"`
	// AS is the router's autonomous system, LocalAS that of the nodes.
	AS      uint32 `json:"as"`
	LocalAS uint32 `json:"localAS"`
	// Nodes are the names of the nodes that connect to it; empty means all.
	Nodes []string `json:"nodes,omitempty"`
	// BFD makes node and router notice within a second that the other is gone.
	BFD bool `json:"bfd"`
}

// ClusterBGPPeerRequest is about a router of the cluster.
type ClusterBGPPeerRequest struct {
	Address netip.Addr `json:"address"`
}

// ClusterBGPSession is a router of the cluster with the session of one node.
type ClusterBGPSession struct {
	ClusterBGPPeer
	// State is that of RFC 4271 8.2.2, e.g. "established"; empty if this node does not connect to it.
	State string `json:"state,omitempty"`
	// Since is when the session was established.
	Since time.Time `json:"since,omitzero"`
	// BFDState is "up" or "down"; empty without BFD.
	BFDState string `json:"bfdState,omitempty"`
}
