package plan

import "net/netip"

// Attachment is what a way to publish must know of an endpoint.
type Attachment struct {
	// Addresses are the endpoint's, at most one of each family.
	Addresses []netip.Addr
	// Link is the host's link that leads there; empty when nothing can be
	// published to the endpoint.
	Link string
	// Bypass holds the source ranges whose answers from the endpoint do not
	// come back through the host: neighbours on its own segment, itself.
	Bypass []netip.Prefix
}

// Address returns the endpoint's address of the family (IPv4 when v4).
func (a Attachment) Address(v4 bool) (netip.Addr, bool) {
	for _, addr := range a.Addresses {
		if addr.Is4() == v4 {
			return addr, true
		}
	}
	return netip.Addr{}, false
}
