package datagram

import (
	"net/netip"

	"fairlead/internal/kernel/localaddr"
)

// Own are the addresses and ports on which the gateway receives datagrams; an unspecified address
// means all of the host's. A datagram from one of them is forged, or the answer to a forged one: if
// the servers answer whatever they get, it would go in circles.
type Own []netip.AddrPort

// has reports whether the client is one of them. If the kernel does not say whether its address is
// the host's, has returns true: the client asks again, and a circle would not end.
func (o Own) has(client netip.AddrPort) bool {
	addr := client.Addr().Unmap().WithZone("")
	for _, at := range o {
		switch {
		case at.Port() != client.Port():
		case at.Addr().Unmap() == addr:
			return true
		case at.Addr().IsUnspecified():
			local, err := localaddr.Has(addr)
			return local || err != nil
		}
	}
	return false
}
