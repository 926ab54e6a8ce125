// Package promise defines the promises that drivers and publish modes make about a
// path, as data. One test proves every promise with packets. The package does not
// know which drivers and publish modes exist.
package promise

import (
	"fmt"
	"slices"
	"strings"
)

// Question is a property of a path that can be promised, e.g. "lan-source".
type Question string

// The questions about a driver: properties of a sandbox without any publish.
const (
	// Isolated: the sandbox has its own network namespace.
	Isolated Question = "isolated"
	// HostDirect: the host reaches the sandbox at the sandbox's address.
	HostDirect Question = "host-direct"
	// PeerDirect: another sandbox of the network reaches the sandbox at its address.
	PeerDirect Question = "peer-direct"
	// LANDirect: the LAN reaches the sandbox at its address, if it has a route.
	LANDirect Question = "lan-direct"
	// Outbound: the sandbox reaches the LAN.
	Outbound Question = "outbound"
	// OutboundSource: the LAN sees the sandbox's own address.
	OutboundSource Question = "outbound-source"
)

// The questions about a publish: which clients reach the port, and which source
// address the workload sees.
const (
	// LAN: another host reaches the port on the host's address.
	LAN Question = "lan"
	// HostAddress: a process of the host reaches the port on the host's address.
	HostAddress Question = "host-address"
	// Loopback4: a process of the host reaches the port on 127.0.0.1.
	Loopback4 Question = "127.0.0.1"
	// Loopback6: a process of the host reaches the port on ::1.
	Loopback6 Question = "::1"
	// Peer: another sandbox reaches the port on the host's address.
	Peer Question = "peer"
	// Itself: the sandbox reaches its own port on the host's address.
	Itself Question = "itself"
	// LoopbackClosed: a port published only on 127.0.0.1 is closed to sandboxes and
	// to the LAN, also to hosts that have a route to 127.0.0.1 through this host.
	LoopbackClosed Question = "127.0.0.1-closed"
	// V6ToV4: an IPv6 client reaches a sandbox that has only IPv4.
	V6ToV4 Question = "v6-to-v4"
	// LANSource: the workload sees the address of a client on the LAN.
	LANSource Question = "lan-source"
	// HostSource: the workload sees the host's address for a client on the host.
	HostSource Question = "host-source"
	// PeerSource: the workload sees the address of a client in another sandbox.
	PeerSource Question = "peer-source"
	// InputFirewall: a rule in the host's INPUT chain stops the LAN.
	InputFirewall Question = "input-firewall"
	// ForwardFirewall: a rule in the host's FORWARD chain stops the LAN.
	ForwardFirewall Question = "forward-firewall"
	// IPsec: a client whose packets an IPsec policy of the host covers reaches the port.
	IPsec Question = "ipsec"
	// Survives: traffic continues after Fairlead is killed with SIGKILL.
	Survives Question = "survives"
)

// Driver lists the questions that every driver answers, in the table's order.
func Driver() []Question {
	return []Question{Isolated, HostDirect, PeerDirect, LANDirect, Outbound, OutboundSource}
}

// Publish lists the questions that every publish mode answers for every driver
// that it supports, in the table's order.
func Publish() []Question {
	return []Question{LAN, HostAddress, Loopback4, Loopback6, Peer, Itself, LoopbackClosed, V6ToV4,
		LANSource, HostSource, PeerSource, InputFirewall, ForwardFirewall, IPsec, Survives}
}

// Named returns the questions about a publish with these names. It returns an error
// if there is no such question.
func Named(names []string) ([]Question, error) {
	var named []Question
	for _, name := range names {
		q := Question(name)
		if !slices.Contains(Publish(), q) {
			return nil, fmt.Errorf("no publish mode promises %q: want one or more of %s", name, Join(Publish()))
		}
		named = append(named, q)
	}
	return named, nil
}

// Join returns the questions' names, separated by commas.
func Join(questions []Question) string {
	var names []string
	for _, q := range questions {
		names = append(names, string(q))
	}
	return strings.Join(names, ", ")
}

// Answer is the answer of a driver or publish mode to a question.
type Answer struct {
	Kept bool `json:"kept"`
	// How explains how the promise is kept or why it is not. It may be empty.
	How string `json:"how,omitempty"`
}

// Set holds the answers of a driver or publish mode, by question.
type Set map[Question]Answer

// Unkept returns the first of the promises that is not kept, and whether there is
// one.
func (s Set) Unkept(asked []Question) (Question, bool) {
	for _, q := range asked {
		if !s[q].Kept {
			return q, true
		}
	}
	return "", false
}

// Yes returns the answer that the promise is kept.
func Yes(how string) Answer { return Answer{Kept: true, How: how} }

// No returns the answer that the promise is not made.
func No(how string) Answer { return Answer{How: how} }
