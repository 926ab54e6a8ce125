package plan

import (
	"net/netip"

	"fairlead/internal/model"
)

// Attachment is what a way to publish must know of an endpoint.
type Attachment struct {
	// Addresses are the endpoint's, at most one of each family.
	Addresses []netip.Addr
	// Link is the host's link that leads there; empty when nothing can be
	// published to the endpoint.
	Link string
	// Closed says why nothing can be published there, where the reason is the
	// driver's own.
	Closed string
	// Bypass holds whose answers from the endpoint do not come back through the
	// host: neighbours on its own segment, itself.
	Bypass []Bypass
	// Shaped says that what the endpoint receives is bounded on its way in, so
	// that no short-cut may be taken.
	Shaped bool
	// Internal says that the endpoint's network is: no eBPF program of ours is at
	// its link, which would let it reach ports of other networks.
	Internal bool
	// Port is the host's end of the sandbox's own link, which may be a port of
	// Link; empty where the sandbox has none.
	Port string
	// Gateways are the host's own addresses in the network, at most one of
	// each family.
	Gateways []netip.Addr
	// Cgroup is the cgroup v2 directory of a workload that runs in the host's
	// namespace, and Unlisted its policy for binds that no publish lists.
	Cgroup   string
	Unlisted model.Unpublished
}

// Gateway returns the host's own address in the network (IPv4 when v4).
func (a Attachment) Gateway(v4 bool) (netip.Addr, bool) { return ofFamily(a.Gateways, v4) }

// Address returns the endpoint's address of the family (IPv4 when v4).
func (a Attachment) Address(v4 bool) (netip.Addr, bool) { return ofFamily(a.Addresses, v4) }

func ofFamily(addrs []netip.Addr, v4 bool) (netip.Addr, bool) {
	for _, addr := range addrs {
		if addr.Is4() == v4 {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// Bypass is a range of clients, and the range of endpoints whose answers to
// them pass the host by.
type Bypass struct{ From, To netip.Prefix }

// Within is the Bypass of neighbours on a segment.
func Within(segment netip.Prefix) Bypass { return Bypass{segment, segment} }
