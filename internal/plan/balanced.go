package plan

import (
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/model"
)

// Balanced is a virtual service for the data planes ebpf and nft. The whole service
// is one value. Its lists must not be changed once it is in a plan.
type Balanced struct {
	// Service is the virtual service's name.
	Service string
	Proto   model.Proto
	// Frontends are the addresses and ports at which the service accepts flows.
	Frontends []netip.AddrPort
	// Scheduler and Forward are never empty: the defaults are already filled in.
	Scheduler model.Scheduler
	Forward   model.Forward
	// Tunnel is the encapsulation if Forward is tunnel.
	Tunnel      model.Tunnel
	Persistence time.Duration
	// Backends are the real servers in canonical order: all hosts derive the same
	// list from the same set.
	Backends []Backend
	// Ring is the order in which backends get new flows, as their indexes. For
	// schedulers that hash, it is the Maglev table: the backend of each bucket.
	Ring []uint16
}

// equal reports whether the services are the same.
func (b Balanced) equal(o Balanced) bool {
	return b.settings() == o.settings() && same(b.Frontends, o.Frontends) && same(b.Backends, o.Backends) &&
		same(b.Ring, o.Ring)
}

// balancedSettings are the fields of Balanced that are not lists.
type balancedSettings struct {
	service     string
	proto       model.Proto
	scheduler   model.Scheduler
	forward     model.Forward
	tunnel      model.Tunnel
	persistence time.Duration
}

func (b Balanced) settings() balancedSettings {
	return balancedSettings{b.Service, b.Proto, b.Scheduler, b.Forward, b.Tunnel, b.Persistence}
}

// same reports whether two lists are equal. Lists of unchanged services usually
// share their memory, which makes the comparison cheap.
func same[T comparable](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	return len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b)
}

// FrontendAddrs returns the addresses and ports of frontends.
func FrontendAddrs(all []model.Frontend) []netip.AddrPort {
	addrs := make([]netip.AddrPort, len(all))
	for i, f := range all {
		addrs[i] = f.At
	}
	return addrs
}

// Backend is a real server of a Balanced service.
type Backend struct {
	// At is its address and port. Port 0 keeps the port that the client connected
	// to.
	At     netip.AddrPort
	Weight uint32
	// Draining is true if it keeps its flows and gets no new ones.
	Draining bool
	// Masquerade is true if it must see the host as the client, because its answers
	// would not return through the host if it saw the client.
	Masquerade bool
	// Tunnel is true if it is on another host and packets to it are encapsulated.
	Tunnel bool
	// Local is true if the real server is this host.
	Local bool
	// Link is the host's end of the sandbox's veth pair if the real server is an
	// endpoint on this host; empty for another host and for this host itself.
	Link string
	// Gateway is the host's address in the endpoint's network. The endpoint sees
	// this address when it is a client of itself. It is not valid for a server on
	// another host.
	Gateway netip.Addr
}
