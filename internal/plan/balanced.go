package plan

import (
	"encoding/binary"
	"net/netip"
	"time"

	"fairlead/internal/model"
)

// Balanced is a virtual service as a data plane of our own holds it: the whole
// service is one value, which is comparable because its lists are packed.
type Balanced struct {
	// Service is the virtual service's name.
	Service   string
	Proto     model.Proto
	Frontends Frontends
	// Scheduler and Forward are chosen: none is empty.
	Scheduler model.Scheduler
	Forward   model.Forward
	// Tunnel is how packets are wrapped, forwarding by tunnel.
	Tunnel      model.Tunnel
	Persistence time.Duration
	// Backends are the real servers, in their canonical order: of the same set,
	// every host has the same list.
	Backends Backends
	// Ring is the Maglev table; empty for other schedulers.
	Ring Ring
}

// Frontends is a packed list of addresses and ports, of 18 bytes each: the
// address as IPv6 (IPv4 is mapped), then the port in network byte order.
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

// Backend is a real server as a data plane holds it.
type Backend struct {
	// At is where it is; port 0 keeps the port that the client has dialled.
	At     netip.AddrPort
	Weight uint32
	// Draining says that it keeps its flows and gets no new ones.
	Draining bool
	// Masquerade says that it must see the host as the client, because its
	// answers would not come back through the host otherwise.
	Masquerade bool
	// Tunnel says that it is elsewhere, and its packets are wrapped in others for
	// its own address.
	Tunnel bool
	// Local says that it is the host itself.
	Local bool
	// Link is the host's end of the endpoint's own link, for one of our
	// sandboxes; empty for a server elsewhere, or here.
	Link string
	// Gateway is the host's address in the endpoint's network, by which it sees
	// itself where it is its own client; not valid for a server elsewhere.
	Gateway netip.Addr
}

// Backends is a packed list of backends: of each the address and port, as
// Frontends has them, the weight (4 bytes), flags (1), the gateway (16, zeros
// for none), and the length of the link's name (1) and that name.
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

// Ring is a packed Maglev table: the index of a backend for each bucket, of two
// bytes each in network byte order.
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
