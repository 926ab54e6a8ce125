package api

import "time"

// EventKind is the kind of an event.
type EventKind string

// The kinds of event.
const (
	// Healed means that one of Fairlead's objects differed and was repaired.
	Healed EventKind = "healed"
	// Unhealed means that a repair failed. The daemon tries again.
	Unhealed EventKind = "failed"
	// Conflicting means that another program keeps changing an object: the daemon
	// waits longer before each further repair.
	Conflicting EventKind = "conflict"
	// RealIsUp and RealIsDown are results of the checks of a real server.
	RealIsUp   EventKind = "up"
	RealIsDown EventKind = "down"
	// RealRemoved means that all nodes of the cluster that accept a service's clients find a
	// real server down. RealReached means that this node does, and that another one finds
	// it up.
	RealRemoved EventKind = "removed"
	RealReached EventKind = "up elsewhere"
	// RealJoined means that a selector has found a real server, RealLeft that a real
	// server was removed.
	RealJoined EventKind = "joined"
	RealLeft   EventKind = "left"
	// DrainBegun and DrainEnded are the start and the end of a real server's drain.
	// RealEnabled means that it gets new flows again.
	DrainBegun  EventKind = "draining"
	DrainEnded  EventKind = "drained"
	RealEnabled EventKind = "enabled"
	// ClientsReset means that clients' connections were reset because their real
	// server is down or was removed, or their service was removed.
	ClientsReset EventKind = "reset"
	// QuorumLost and QuorumGained mean that a service has fewer real servers up than
	// its quorum, or enough again.
	QuorumLost   EventKind = "quorum lost"
	QuorumGained EventKind = "quorum gained"
	// SorryUsed means that a service sends clients to its sorry server. PanicBegun
	// means that it uses all real servers although checks fail. ChecksBelieved is the
	// end of both.
	SorryUsed      EventKind = "sorry"
	PanicBegun     EventKind = "panic"
	ChecksBelieved EventKind = "recovered"
	// NetworkUnavailable means that a network cannot exist on this host for now,
	// NetworkAvailable that it can again.
	NetworkUnavailable EventKind = "unavailable"
	NetworkAvailable   EventKind = "available"
	// NodeJoined, NodeLeft, NodeDrained and NodeEnabled are about the nodes of the cluster.
	// NodeRemoved means that another node has removed this one.
	NodeJoined  EventKind = "node joined"
	NodeLeft    EventKind = "node left"
	NodeDrained EventKind = "node drained"
	NodeEnabled EventKind = "node enabled"
	NodeRemoved EventKind = "node removed"
	// AddressHeld means that a node of the cluster holds a virtual address, AddressReleased that
	// its holder has given it up.
	AddressHeld     EventKind = "address held"
	AddressReleased EventKind = "address released"
	// EtcdLost means that no server of etcd answers: the cluster's objects do not change
	// until EtcdAnswers. ClusterFrozen means that etcd has records of another cluster or
	// older ones, and that the host ignores them until ClusterFollowed.
	EtcdLost        EventKind = "etcd lost"
	EtcdAnswers     EventKind = "etcd answers"
	ClusterFrozen   EventKind = "frozen"
	ClusterFollowed EventKind = "no longer frozen"
	// AddressLost means that this host does not answer for a virtual address any more, and
	// AddressConflict that another host answers for one that this host holds.
	AddressLost     EventKind = "address lost"
	AddressConflict EventKind = "address conflict"
	// OutboundExhausted means that no port was free for outbound connections that the eBPF
	// programs translate. The kernel forwards them.
	OutboundExhausted EventKind = "outbound ports used up"
	// OutboundChosen means that a setting was chosen for a network with outbound auto for the
	// first time, or another one because the rules of the host have changed.
	OutboundChosen EventKind = "outbound chosen"
	// FlowtableCleared means that rules of the host have changed, and that the connections in
	// the flowtable pass all rules again.
	FlowtableCleared EventKind = "flowtable cleared"
)

// Event is a change of the host or of a virtual service.
type Event struct {
	Time time.Time `json:"time"`
	Kind EventKind `json:"kind"`
	// Object is the key of the changed object in the plan, or e.g. "service web".
	Object string `json:"object"`
	// Commands are the commands of the repair, as typed in a shell.
	Commands []string `json:"commands,omitempty"`
	// By is the program that changed the object, if the kernel reports the program.
	By     string `json:"by,omitempty"`
	Detail string `json:"detail,omitempty"`
}
