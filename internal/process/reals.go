package process

import (
	"context"
	"net"
	"net/netip"

	"fairlead/internal/health"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
)

// dialReal returns how health checks connect to a real server. With forward direct or
// tunnel, real servers get packets for the virtual address. Such a server can be
// healthy at its own address and still drop what clients send. Therefore the check
// first sends a TCP SYN for the virtual address, encapsulated like the clients'
// packets. Then it checks the server's own address, as for other services: it cannot
// make a whole connection to the virtual address, which is the host's own.
func dialReal(host *kernel.Host) func(model.VirtualService, model.RealServer) health.DialFunc {
	return func(v model.VirtualService, r model.RealServer) health.DialFunc {
		if v.Forward != model.ForwardDirect && v.Forward != model.ForwardTunnel || v.Proto != model.TCP {
			return nil
		}
		halfOpen := host.TCP().HalfOpen
		if v.Forward == model.ForwardTunnel && r.Endpoint == "" {
			halfOpen = func(ctx context.Context, virtual netip.AddrPort, server netip.Addr) error {
				return host.TCP().HalfOpenByTunnel(ctx, virtual, server, v.Tunnel)
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
