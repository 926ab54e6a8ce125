// Package counter has the counters that the kernel's tables keep, as values.
package counter

import (
	"net/netip"

	"fairlead/internal/model"
)

// InOut is a count for each direction from the workload's view: In is towards the
// workload.
type InOut struct {
	In  uint64 `json:"in"`
	Out uint64 `json:"out"`
}

// Add returns the sum.
func (n InOut) Add(o InOut) InOut { return InOut{n.In + o.In, n.Out + o.Out} }

// Traffic counts the traffic of a link or port mapping. Bytes are those of whole
// frames. A packet that the kernel handles as one (segmentation offload) counts
// once.
type Traffic struct {
	Bytes   InOut `json:"bytes"`
	Packets InOut `json:"packets"`
	Drops   InOut `json:"drops"`
}

// Add returns the sum.
func (t Traffic) Add(o Traffic) Traffic {
	return Traffic{t.Bytes.Add(o.Bytes), t.Packets.Add(o.Packets), t.Drops.Add(o.Drops)}
}

// PublishedPorts are the host ports of one port mapping, of the eBPF table or of
// the nft table fairlead.
type PublishedPorts struct {
	Proto model.Proto
	// Host is unspecified for every address of its family.
	Host  netip.Addr
	Ports model.PortRange
	// To is the endpoint's address.
	To netip.Addr
}

// Publish counts the traffic of published ports.
type Publish struct {
	PublishedPorts
	Traffic
	// Flows is the number of flows begun.
	Flows uint64
	// Live is the number of current flows.
	Live uint64
}

// Fill is the number of entries in a table of the kernel, and its maximum.
type Fill struct {
	Entries uint64 `json:"entries"`
	Max     uint64 `json:"max"`
}
