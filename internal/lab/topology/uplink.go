package topology

import (
	"bytes"
	"crypto/rand"
	"net"
	"net/netip"
	"slices"
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

// wirePrefix begins all addresses of wires. It is locally administered (IEEE 802), and no virtual machine monitor or
// container engine uses it: a laboratory must not get the packets of the machine's neighbours on the link.
var wirePrefix = []byte{0x06, 0xf1, 0xab}

// NewWire returns random addresses for the two ends of a wire.
func NewWire() (server, client net.HardwareAddr) {
	random := make([]byte, 3)
	_, _ = rand.Read(random) // it never fails
	server = slices.Concat(wirePrefix, random)
	return server, flipped(server, machineBit)
}

// OfWire reports whether an address can be one of NewWire.
func OfWire(a net.HardwareAddr) bool {
	return len(a) == len(wirePrefix)+3 && bytes.HasPrefix(a, wirePrefix)
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

// The bits of the last byte of a wire's addresses that distinguish the ends of further
// links on the same machines.
const (
	machineBit = 1
	secondBit  = 2
	sandboxBit = 4
)

// of returns the uplink of a wire.
func (u Uplink) of(wire string) Uplink {
	if wire == SecondWire {
		u.MAC, u.Peer = flipped(u.MAC, secondBit), flipped(u.Peer, secondBit)
	}
	return u
}

// flipped returns the address with another bit in its last byte.
func flipped(a net.HardwareAddr, bit byte) net.HardwareAddr {
	a = slices.Clone(a)
	a[len(a)-1] ^= bit
	return a
}

// SandboxMAC returns the address that the sandbox's macvlan of the server host has in
// a part, so that the other machine knows it; nil if one world has both hosts.
func (w *World) SandboxMAC() net.HardwareAddr {
	switch w.part {
	case ServerPart:
		return flipped(w.uplink.MAC, sandboxBit)
	case ClientPart:
		return flipped(w.uplink.Peer, sandboxBit)
	}
	return nil
}

// ReachSandbox makes the client host of a part send packets for an address on the wire
// to the sandbox's macvlan of the server host.
func (w *World) ReachSandbox(addr netip.Addr) error {
	return w.client.FixNeighbours("", Wire, w.SandboxMAC(), []netip.Addr{addr})
}

// FixSandbox makes a link of a sandbox of a part send packets to the client host only,
// like the wire of the server host.
func (w *World) FixSandbox(sandbox, link, onWire string) error {
	clients := map[string][]netip.Addr{Wire: wire.client, SecondWire: second.client}[onWire]
	return w.server.FixNeighbours(w.sandboxes[sandbox].Path(), link, w.uplink.of(onWire).Peer, clients)
}
