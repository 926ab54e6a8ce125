package plan

import (
	"fmt"

	"fairlead/internal/escape"
)

// Outbound flows have the host's ports from FirstOutboundPort on, without those between
// FirstHostPort and LastHostPort, from which the host itself connects (as in
// bpf/include/outbound.h).
const (
	FirstOutboundPort = 10000
	FirstHostPort     = 32768
	LastHostPort      = 60999
)

// OutboundPorts names these ports for messages.
var OutboundPorts = fmt.Sprintf("%d-%d and %d-65535", FirstOutboundPort, FirstHostPort-1, LastHostPort+1)

// IsOutboundPort reports whether an outbound flow may have the host's port.
func IsOutboundPort(port uint16) bool {
	return port >= FirstOutboundPort && (port < FirstHostPort || port > LastHostPort)
}

// Outbound makes the eBPF programs translate the connections that a sandbox opens to hosts
// outside. Ingress must exist for the same link.
type Outbound struct {
	// Link is the host's end of the sandbox's link.
	Link string
	// Router is the link whose packets the host routes: the bridge that Link is a port
	// of, or Link.
	Router string
}

// Key implements Object.
func (o Outbound) Key() string { return "bpf outbound " + o.Link }

// Add implements Object.
func (o Outbound) Add() []string {
	return []string{fmt.Sprintf("# ebpf: translate what %s sends outside, routed from %s", escape.Shell(o.Link),
		escape.Shell(o.Router))}
}

// Del implements Object.
func (o Outbound) Del() []string {
	return []string{"# ebpf: leave what " + escape.Shell(o.Link) + " sends outside to netfilter"}
}

func (o Outbound) base() string { return end("", o.Link) }
