package service

import (
	"context"
	"net"
	"net/netip"

	"fairlead/internal/health"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
)

// dialReal returns how the checks reach a real server. One to which packets are
// sent as they are, for the virtual address, is first asked for a connection to
// that in just such a packet, wrapped if theirs are: it may be well at its own
// address and drop what clients send. Then it is checked at its own address, as all others are, since
// a whole conversation for an address that is the host's own is more than a
// check can have.
func dialReal(host *kernel.Host) func(model.VirtualService, model.RealServer) health.DialFunc {
	return func(v model.VirtualService, r model.RealServer) health.DialFunc {
		if v.Forward != model.ForwardDirect && v.Forward != model.ForwardTunnel || v.Proto != model.TCP {
			return nil
		}
		halfOpen := host.HalfOpen
		if v.Forward == model.ForwardTunnel && r.Endpoint == "" {
			halfOpen = func(ctx context.Context, virtual netip.AddrPort, server netip.Addr) error {
				return host.HalfOpenByTunnel(ctx, virtual, server, v.Tunnel)
			}
		}
		at := r.At(v.Ports[0].First).Port()
		plain := &net.Dialer{KeepAlive: -1}
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			for _, virtual := range v.Addresses {
				if virtual.Is4() != r.Address.Is4() {
					continue
				}
				if err := halfOpen(ctx, netip.AddrPortFrom(virtual, at), r.Address); err != nil {
					return nil, health.Unanswered{Err: err}
				}
			}
			return plain.DialContext(ctx, network, address)
		}
	}
}
