package plan

import (
	"encoding/binary"
	"net/netip"
	"time"

	"fairlead/internal/model"
)

// Balanced is a virtual service for the data planes ebpf and nft. The whole service
// is one value, which is comparable because its lists are packed.
type Balanced struct {
	// Service is the virtual service's name.
	Service   string
	Proto     model.Proto
	Frontends Frontends
	// Scheduler and Forward are never empty: the defaults are already filled in.
	Scheduler model.Scheduler
	Forward   model.Forward
	// Tunnel is the encapsulation if Forward is tunnel.
	Tunnel      model.Tunnel
	Persistence time.Duration
	// Backends are the real servers in canonical order: all hosts derive the same
	// list from the same set.
	Backends Backends
	// Ring is the Maglev table; empty for other schedulers.
	Ring Ring
}

// Frontends is a packed list of addresses and ports, 18 bytes each: the address as
// IPv6 (IPv4 is mapped), then the port in network byte order.
type Frontends string

// PackFrontends packs a list.
func PackFrontends(all []model.Frontend) Frontends {
	packed := make([]byte, 0, 18*len(all))
	for _, f := range all {
		packed = appendAddrPort(packed, f.At)
	}
	return Frontends(packed)
}

// List unpacks the list.
func (f Frontends) List() []netip.AddrPort {
	all := make([]netip.AddrPort, 0, len(f)/18)
	for ; len(f) >= 18; f = f[18:] {
		all = append(all, addrPort(string(f[:18])))
	}
	return all
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

// Backends is a packed list of backends. Each has the address and port as in
// Frontends, the weight (4 bytes), flags (1), the gateway (16, zeros for none), the
// length of the link's name (1) and the name.
type Backends string

const (
	packedDraining = 1 << iota
	packedMasquerade
	packedGateway
	packedTunnel
	packedLocal
)

// PackBackends packs a list.
func PackBackends(all []Backend) Backends {
	var packed []byte
	for _, b := range all {
		packed = appendAddrPort(packed, b.At)
		packed = binary.BigEndian.AppendUint32(packed, b.Weight)
		var flags byte
		if b.Draining {
			flags |= packedDraining
		}
		if b.Masquerade {
			flags |= packedMasquerade
		}
		if b.Tunnel {
			flags |= packedTunnel
		}
		if b.Local {
			flags |= packedLocal
		}
		gateway := netip.IPv6Unspecified()
		if b.Gateway.IsValid() {
			flags |= packedGateway
			gateway = b.Gateway
		}
		packed = append(packed, flags)
		as16 := gateway.As16()
		packed = append(packed, as16[:]...)
		packed = append(packed, byte(len(b.Link)))
		packed = append(packed, b.Link...)
	}
	return Backends(packed)
}

// List unpacks the list.
func (p Backends) List() []Backend {
	var all []Backend
	for len(p) >= 40 {
		flags, name := p[22], int(p[39])
		b := Backend{
			At: addrPort(string(p[:18])), Weight: binary.BigEndian.Uint32([]byte(p[18:22])),
			Draining: flags&packedDraining != 0, Masquerade: flags&packedMasquerade != 0, Tunnel: flags&packedTunnel != 0,
			Local: flags&packedLocal != 0,
			Link:  string(p[40 : 40+name]),
		}
		if flags&packedGateway != 0 {
			b.Gateway = netip.AddrFrom16([16]byte([]byte(p[23:39]))).Unmap()
		}
		all = append(all, b)
		p = p[40+name:]
	}
	return all
}

// Ring is a packed Maglev table: the index of a backend for each bucket, 2 bytes
// each in network byte order.
type Ring string

// PackRing packs a table.
func PackRing(buckets []uint16) Ring {
	packed := make([]byte, 0, 2*len(buckets))
	for _, b := range buckets {
		packed = binary.BigEndian.AppendUint16(packed, b)
	}
	return Ring(packed)
}

// Len returns the number of buckets.
func (r Ring) Len() int { return len(r) / 2 }

// At returns the index of bucket i's backend.
func (r Ring) At(i int) int { return int(r[2*i])<<8 | int(r[2*i+1]) }

func appendAddrPort(to []byte, at netip.AddrPort) []byte {
	as16 := at.Addr().As16()
	return binary.BigEndian.AppendUint16(append(to, as16[:]...), at.Port())
}

func addrPort(s string) netip.AddrPort {
	b := []byte(s)
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b)).Unmap(), binary.BigEndian.Uint16(b[16:]))
}
