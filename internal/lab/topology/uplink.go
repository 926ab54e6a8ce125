package topology

import (
	"net"
	"time"

	"fairlead/internal/kernel"
	"fairlead/internal/lab/result"
)

// Uplink connects a host with another machine; see kernel.Uplink.
type Uplink struct {
	// Link is the name of the machine's link.
	Link string
	// MAC is the address of the host's end of the wire, Peer that of the other end.
	MAC, Peer net.HardwareAddr
}

// DescribeLink describes a link of this machine. It measures the link's traffic for
// the given time.
func DescribeLink(name string, during time.Duration) (result.Link, error) {
	facts, err := kernel.DescribeLink(name)
	if err != nil {
		return result.Link{}, err
	}
	bytes, err := kernel.LinkRate(name, during)
	return result.Link{Name: facts.Name, Driver: facts.Driver, MTU: facts.MTU, Speed: facts.Speed,
		Offloads: facts.Offloads, Filters: facts.Filters, Other: 8 * bytes}, err
}
