package model

// Plane names a data plane of the balancer.
type Plane string

// The data planes. PlaneAuto, which is also the empty one, leaves the choice to the
// engine.
const (
	PlaneIPVS Plane = "ipvs"
	PlaneNFT  Plane = "nft"
	PlaneEBPF Plane = "ebpf"
	PlaneAuto Plane = "auto"
)

// PlaneTraits are the properties of a data plane that other packages depend on. Packets
// of a data plane with the zero value pass the host's rules of FORWARD.
type PlaneTraits struct {
	// AtLinks is true if programs at the links handle the packets, before all rules of
	// the host and without its forwarding.
	AtLinks bool
	// AtInput is true if the packets pass the host's rules of INPUT.
	AtInput bool
	// NeedsLocalAddress is true if the addresses of a service must be local addresses
	// of the host.
	NeedsLocalAddress bool
	// FlowsOnly is true if only the first packet of a flow passes the data plane, which
	// therefore counts flows, and neither packets nor bytes.
	FlowsOnly bool
}

// planes has one row per data plane, the cheapest first.
var planes = []struct {
	name   Plane
	traits PlaneTraits
}{
	{PlaneEBPF, PlaneTraits{AtLinks: true}},
	{PlaneNFT, PlaneTraits{NeedsLocalAddress: true, FlowsOnly: true}},
	{PlaneIPVS, PlaneTraits{NeedsLocalAddress: true, AtInput: true}},
}

// Planes returns the names of the data planes, the cheapest first.
func Planes() []Plane {
	var names []Plane
	for _, row := range planes {
		names = append(names, row.name)
	}
	return names
}

// Traits returns the data plane's traits. Auto and an unknown data plane have the zero
// value.
func (p Plane) Traits() PlaneTraits {
	for _, row := range planes {
		if row.name == p {
			return row.traits
		}
	}
	return PlaneTraits{}
}
