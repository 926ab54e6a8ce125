package rig

import (
	"net/netip"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
)

// outside returns the address of the client host that the workload's sandbox connects
// to: on the wire, or on the one that the sandbox has for itself.
func (b *Base) outside() netip.Addr {
	if b.Path.Driver.Traits().MovesDevice {
		return b.Addresses().ClientSecond
	}
	return b.Addresses().Client
}

// OutboundLinks returns the links that all traffic of such connections must pass,
// whoever makes the path.
func (b *Base) OutboundLinks() []Link {
	wire := Link{Name: topology.Wire}
	switch t := b.Path.Driver.Traits(); {
	case t.HostNetns, b.Path.Outbound == model.OutboundEBPF:
		return []Link{wire}
	case t.MovesDevice:
		return []Link{inside}
	}
	return []Link{inside, wire}
}

// outboundProof returns the proof of such connections whose traffic has passed the
// links. The client host has no route to the sandboxes on a bridge. So packets with a
// sandbox's own address get no answer, and the bytes prove that the source address was
// translated. The flows in the host's conntrack table prove that its NAT did that, and the
// counter of the eBPF programs that they did.
func (b *Base) outboundProof(w Window, links *result.Proof) *result.Proof {
	if !b.Path.Driver.Traits().Bridge {
		return links
	}
	if b.Path.Outbound == model.OutboundEBPF {
		translated := w.After.translated - w.Before.translated
		return &result.Proof{Counter: "outbound bytes translated by eBPF", Want: w.Received, Got: translated,
			OK: links.OK && translated >= w.Received}
	}
	flows := uint64(w.After.Flows)
	return &result.Proof{Counter: "flows in conntrack", Want: 1, Got: flows, OK: flows > 0}
}
