package model

// Carrier is what brings packets from a published port to the endpoint.
type Carrier byte

// The carriers.
const (
	// CarrierStack is the kernel's network stack, which translates addresses. The mode's flows are entries of
	// conntrack: the open ones are counted there, and their bytes are not counted.
	CarrierStack Carrier = iota
	// CarrierPrograms are eBPF programs at links. Packets that they redirect bypass the rest of the stack and the
	// host's IPsec policies, so that they leave what a policy covers to the kernel.
	CarrierPrograms
	// CarrierHooks are eBPF hooks at the sockets of a workload in the host's network namespace. All other carriers
	// serve sandboxes.
	CarrierHooks
	// CarrierUserSpace is the user-space proxy, which opens another connection.
	CarrierUserSpace
)
