// Package promise says in data what a path can be asked to promise. Drivers
// and ways to publish answer; one test proves every answer with packets. It
// does not know which drivers and ways there are.
package promise

import (
	"fmt"
	"slices"
	"strings"
)

// Question is one property of a path that can be true or false.
type Question string

// The questions about a driver: what a sandbox is without any publish.
const (
	// Isolated: the sandbox has a network namespace of its own.
	Isolated Question = "isolated"
	// HostDirect: the host reaches the sandbox at the sandbox's address.
	HostDirect Question = "host-direct"
	// PeerDirect: a sandbox of the same network reaches it there.
	PeerDirect Question = "peer-direct"
	// LANDirect: the LAN, given a route, reaches it there.
	LANDirect Question = "lan-direct"
	// Outbound: the sandbox reaches the LAN.
	Outbound Question = "outbound"
	// OutboundSource: the LAN sees the sandbox's own address.
	OutboundSource Question = "outbound-source"
)

// The questions about a publish: who reaches it, and what the workload sees.
const (
	// LAN: another host reaches the port on the host's address.
	LAN Question = "lan"
	// HostAddress: a process of the host reaches it on the host's own
	// address.
	HostAddress Question = "host-address"
	// Loopback4: a process of the host reaches it on 127.0.0.1.
	Loopback4 Question = "127.0.0.1"
	// Loopback6: a process of the host reaches it on ::1.
	Loopback6 Question = "::1"
	// Peer: another sandbox reaches it on the host's address.
	Peer Question = "peer"
	// Itself: the sandbox reaches itself through the host's address.
	Itself Question = "itself"
	// LoopbackClosed: a port published on 127.0.0.1 only is closed to the
	// LAN and to sandboxes, even to hosts that route 127.0.0.1 to us.
	LoopbackClosed Question = "127.0.0.1-closed"
	// V6ToV4: an IPv6 client reaches a sandbox that has only IPv4.
	V6ToV4 Question = "v6-to-v4"
	// LANSource: the workload sees the address of a client on the LAN.
	LANSource Question = "lan-source"
	// HostSource: it sees the host's address of a client on the host.
	HostSource Question = "host-source"
	// PeerSource: it sees the address of another sandbox.
	PeerSource Question = "peer-source"
	// InputFirewall: a rule in the host's INPUT chain stops the LAN.
	InputFirewall Question = "input-firewall"
	// ForwardFirewall: a rule in the host's FORWARD chain stops the LAN.
	ForwardFirewall Question = "forward-firewall"
	// Survives: traffic goes on when Fairlead is killed with SIGKILL.
	Survives Question = "survives"
)

// Driver lists the questions that every driver answers, in the table's order.
func Driver() []Question {
	return []Question{Isolated, HostDirect, PeerDirect, LANDirect, Outbound, OutboundSource}
}

// Publish lists the questions that every way to publish answers, for every
// driver it can publish, in the table's order.
func Publish() []Question {
	return []Question{LAN, HostAddress, Loopback4, Loopback6, Peer, Itself, LoopbackClosed, V6ToV4,
		LANSource, HostSource, PeerSource, InputFirewall, ForwardFirewall, Survives}
}

// Named returns the questions about a publish that have those names.
func Named(names []string) ([]Question, error) {
	var named []Question
	for _, name := range names {
		q := Question(name)
		if !slices.Contains(Publish(), q) {
			return nil, fmt.Errorf("there is no promise %q of a publish: want some of %s", name, Join(Publish()))
		}
		named = append(named, q)
	}
	return named, nil
}

// Join writes the questions' names one after the other.
func Join(questions []Question) string {
	var names []string
	for _, q := range questions {
		names = append(names, string(q))
	}
	return strings.Join(names, ", ")
}

// Answer is what a driver or way promises.
type Answer struct {
	Kept bool `json:"kept"`
	// How says how it is kept, or why it is not; empty where it is plain.
	How string `json:"how,omitempty"`
}

// Set holds the answer to each question.
type Set map[Question]Answer

// Unkept returns the first of the questions that is not answered by yes.
func (s Set) Unkept(asked []Question) (Question, bool) {
	for _, q := range asked {
		if !s[q].Kept {
			return q, true
		}
	}
	return "", false
}

// Yes is a promise that is kept.
func Yes(how string) Answer { return Answer{Kept: true, How: how} }

// No is a promise that is not made.
func No(how string) Answer { return Answer{How: how} }
