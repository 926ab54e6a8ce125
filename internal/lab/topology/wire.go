package topology

import (
	"net/netip"

	"fairlead/internal/engine"
	"fairlead/internal/kernel"
	"fairlead/internal/plan"
	"fairlead/internal/store"
)

// The names of the wires' links on both hosts. The second wire exists only for
// paths that need it.
const (
	Wire       = "wire0"
	SecondWire = "wire1"
)

// The hosts' addresses on the wires, from the ranges reserved for documentation
// (RFC 5737, RFC 3849).
var (
	ClientAddr4 = netip.MustParseAddr("198.51.100.1")
	ServerAddr4 = netip.MustParseAddr("198.51.100.2")
	ClientAddr6 = netip.MustParseAddr("2001:db8:1::1")
	ServerAddr6 = netip.MustParseAddr("2001:db8:1::2")

	ClientSecond4 = netip.MustParseAddr("203.0.113.1")
	ServerSecond4 = netip.MustParseAddr("203.0.113.2")
	ClientSecond6 = netip.MustParseAddr("2001:db8:2::1")
	ServerSecond6 = netip.MustParseAddr("2001:db8:2::2")
)

// Subnet returns the subnet of an address on a wire.
func Subnet(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(a, 24)
	}
	return netip.PrefixFrom(a, 64)
}

// ends are the addresses of the two ends of a wire.
type ends struct{ client, server []netip.Addr }

var (
	wire   = ends{[]netip.Addr{ClientAddr4, ClientAddr6}, []netip.Addr{ServerAddr4, ServerAddr6}}
	second = ends{[]netip.Addr{ClientSecond4, ClientSecond6}, []netip.Addr{ServerSecond4, ServerSecond6}}
)

// wire connects the hosts, or the world's only host with the other machine. Engines
// treat it as a foreign link.
func (w *World) wire(name string, at ends) error {
	if w.part != Whole {
		return w.wireOut(name, at)
	}
	if err := kernel.Wire(w.client, w.server, name, w.mtu); err != nil {
		return err
	}
	for host, addrs := range map[*kernel.Host][]netip.Addr{w.client: at.client, w.server: at.server} {
		for _, a := range addrs {
			if err := host.Set(plan.Address{Link: name, Prefix: Subnet(a)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// wireOut connects the world's only host with the other machine.
func (w *World) wireOut(name string, at ends) error {
	host, own, others := w.server, at.server, at.client
	if host == nil {
		host, own, others = w.client, at.client, at.server
	}
	if err := kernel.WireOut(host, name, w.mtu, kernel.Uplink(w.uplink.of(name)), others); err != nil {
		return err
	}
	for _, a := range own {
		if err := host.Set(plan.Address{Link: name, Prefix: Subnet(a)}); err != nil {
			return err
		}
	}
	return nil
}

// AddSecondWire adds the second wire.
func (w *World) AddSecondWire() error { return w.wire(SecondWire, second) }

// AddDevice adds the second wire without an address at the server's end, for paths
// that move this link into a sandbox.
func (w *World) AddDevice() error {
	err := w.wire(SecondWire, ends{client: second.client})
	if err == nil && w.part == ClientPart {
		err = w.client.FixNeighbours("", SecondWire, w.uplink.of(SecondWire).Peer, second.server)
	}
	return err
}

// ClientEngine returns the engine of the client host, for paths that need both.
func (w *World) ClientEngine() *engine.Engine {
	if w.clientEngine == nil {
		w.clientEngine = engine.New(engine.Config{Kernel: w.client, Flows: w.client, Inspector: w.client,
			Store: &store.Memory{}, Facts: w.facts})
	}
	return w.clientEngine
}
