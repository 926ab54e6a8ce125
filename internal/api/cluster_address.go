package api

import (
	"net/netip"
	"time"
)

// ClusterAddressSpec is a virtual address of a cluster: at most one node answers for it at a time.
type ClusterAddressSpec struct {
	// Address has the length of its subnet, e.g. 192.0.2.10/24.
	Address netip.Prefix `json:"address"`
	// Link is the name of the link that gets the address on each host; empty means the link with
	// an address in the same subnet.
	Link string `json:"link,omitempty"`
	// Hold is for how long a renewal by the holder is valid; 0 means 3 s.
	Hold time.Duration `json:"hold,omitempty"`
	// Candidates are the names of the nodes that may hold it; empty means all.
	Candidates []string `json:"candidates,omitempty"`
	// Announce is "bgp" if all candidates have the address at the same time and announce it to routers;
	// empty means that one node holds it.
	Announce string `json:"announce,omitempty"`
}

// ClusterAddressRequest is about a virtual address of the cluster.
type ClusterAddressRequest struct {
	Address netip.Addr `json:"address"`
	// Node is the name of the node to which the address moves; empty means any other candidate.
	Node string `json:"node,omitempty"`
	// Force claims or removes the address although the cluster cannot exclude that its holder still
	// answers: the administrator guarantees that it is down.
	Force bool `json:"force,omitempty"`
}

// ClusterAddress is the state of a virtual address as one node sees it.
type ClusterAddress struct {
	ClusterAddressSpec
	// Holder is the name of the node that has the address; empty if none has. Since is when it
	// claimed it, by its own clock.
	Holder string    `json:"holder,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	// Epoch grows whenever the holder changes.
	Epoch int64 `json:"epoch"`
	// Answers is true if the kernel of this host answers for the address now.
	Answers bool `json:"answers,omitempty"`
	// Lease is the longest time for which the holder answers without another renewal. It is 0 if
	// that time is over.
	Lease time.Duration `json:"lease"`
	// Renewed is the time since this node last saw a change of the record.
	Renewed time.Duration `json:"renewed"`
	// Target is the name of the node to which the address moves.
	Target string `json:"target,omitempty"`
	// Removed is true while the holder has not yet given up an address that was removed.
	Removed bool `json:"removed,omitempty"`
	// Barred is why this node does not take the address even if no node holds it.
	Barred string `json:"barred,omitempty"`
	// Conflict is the last time that another host has answered for the address while this one held
	// it; nil means never.
	Conflict *AddressConflictAt `json:"conflict,omitempty"`
}

// AddressConflictAt is an answer of another host for a virtual address that this host holds.
type AddressConflictAt struct {
	// MAC is that of the other host's link.
	MAC string    `json:"mac"`
	At  time.Time `json:"at"`
}
