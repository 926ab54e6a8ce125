package plan

import (
	"net/netip"

	"fairlead/internal/model"
)

// Attachment holds the properties of an endpoint that a publish mode needs.
type Attachment struct {
	// Addresses are the endpoint's, at most one per family.
	Addresses []netip.Addr
	// Link is the host's link through which the endpoint is reached. It is empty if
	// nothing can be published to the endpoint.
	Link string
	// Closed is the reason why nothing can be published to the endpoint, if the
	// driver is the reason.
	Closed string
	// Bypass lists the clients whose answers from the endpoint do not return
	// through the host: neighbours on the endpoint's segment, and the endpoint
	// itself.
	Bypass []Bypass
	// Shaped is true if the endpoint's receive rate is limited. Packets must then
	// not bypass the host's end of the link.
	Shaped bool
	// Internal is true if the endpoint's network is internal. Its link then gets no
	// eBPF program, because the program would let the endpoint reach published
	// ports of other networks.
	Internal bool
	// Away is true if the sandbox's default route is not via the host's address in
	// the endpoint's network. Answers to clients outside of the network then leave by
	// another link. Bypass has these clients.
	Away bool
	// Port is the host's end of the sandbox's veth pair, which may be a port of the
	// bridge Link. It is empty if the sandbox has none.
	Port string
	// Gateways are the host's addresses in the network, at most one per family.
	Gateways []netip.Addr
	// Cgroup is the cgroup v2 directory of a workload in the host's namespace.
	// Unpublished is its policy for binds to ports that no publish lists.
	Cgroup      string
	Unpublished model.Unpublished
}

// Gateway returns the host's address in the network (IPv4 if v4). It returns false
// if there is none.
func (a Attachment) Gateway(v4 bool) (netip.Addr, bool) { return ofFamily(a.Gateways, v4) }

// Address returns the endpoint's address of the family (IPv4 if v4). It returns
// false if there is none.
func (a Attachment) Address(v4 bool) (netip.Addr, bool) { return ofFamily(a.Addresses, v4) }

func ofFamily(addrs []netip.Addr, v4 bool) (netip.Addr, bool) {
	for _, addr := range addrs {
		if addr.Is4() == v4 {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// Bypass is a range of clients (From) and a range of endpoints (To) whose answers
// to these clients do not pass the host.
type Bypass struct{ From, To netip.Prefix }

// Within returns the Bypass of neighbours on one segment.
func Within(segment netip.Prefix) Bypass { return Bypass{segment, segment} }
