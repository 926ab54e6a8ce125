package kernel

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"fairlead/internal/kernel/rawtcp"
	"fairlead/internal/model"
	"fairlead/test/unwrap"
)

// TestHalfOpen checks a server before and after it has the virtual address, and
// before and after it listens there.
func TestHalfOpen(t *testing.T) {
	testHalfOpen(t, func(h *Host, ctx context.Context, virtual netip.AddrPort, server netip.Addr) error {
		return h.tcp.HalfOpen(ctx, virtual, server)
	}, nil)
}

// TestHalfOpenByTunnel checks servers that decapsulate packets.
func TestHalfOpenByTunnel(t *testing.T) {
	for _, by := range []model.Tunnel{{}, {Type: model.TunnelGUE, Port: unwrap.GUE}} {
		t.Run(by.String(), func(t *testing.T) {
			ask := func(h *Host, ctx context.Context, virtual netip.AddrPort, server netip.Addr) error {
				return h.tcp.HalfOpenByTunnel(ctx, virtual, server, by)
			}
			testHalfOpen(t, ask, func(t *testing.T, server *Host) {
				end, err := unwrap.On(server.ns.Do, "wire")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { end.Close() })
			})
		})
	}
}

func testHalfOpen(t *testing.T, halfOpen func(*Host, context.Context, netip.AddrPort, netip.Addr) error,
	prepare func(*testing.T, *Host)) {
	for name, c := range map[string]struct{ host, server, virtual, bits string }{
		"ipv4": {"10.9.0.1", "10.9.0.2", "192.0.2.80", "/24"},
		"ipv6": {"fd00:9::1", "fd00:9::2", "2001:db8:80::80", "/64"},
	} {
		t.Run(name, func(t *testing.T) {
			h, server := openTestHost(t), openTestHost(t)
			if err := Wire(h, server, "wire", 1500); err != nil {
				t.Fatal(err)
			}
			h.run(t, "ip", "addr", "add", c.host+c.bits, "dev", "wire", "nodad")
			server.run(t, "ip", "addr", "add", c.server+c.bits, "dev", "wire", "nodad")
			server.run(t, "ip", "link", "set", "lo", "up")
			check := func(timeout time.Duration) error {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				return halfOpen(h, ctx, netip.AddrPortFrom(netip.MustParseAddr(c.virtual), 80),
					netip.MustParseAddr(c.server))
			}
			serve(t, server.ns, netip.AddrPortFrom(netip.MustParseAddr(c.server), 80).String())
			if err := check(200 * time.Millisecond); !errors.Is(err, rawtcp.ErrNotVirtual) {
				t.Errorf("a server without the address: %v", err)
			}
			server.run(t, "ip", "addr", "add", c.virtual, "dev", "lo", "nodad")
			if prepare != nil {
				if err := check(200 * time.Millisecond); !errors.Is(err, rawtcp.ErrNotVirtual) {
					t.Errorf("a server that does not decapsulate: %v", err)
				}
				prepare(t, server)
			}
			if err := check(10 * time.Second); !errors.Is(err, rawtcp.ErrNotVirtual) {
				t.Errorf("a server that listens only on its own address: %v", err)
			}
			serve(t, server.ns, netip.AddrPortFrom(netip.MustParseAddr(c.virtual), 80).String())
			if err := check(10 * time.Second); err != nil {
				t.Errorf("a server that listens: %v", err)
			}
			// Without a reset, half-open connections would stay for a minute
			// (tcp_synack_retries).
			left := "?"
			for end := time.Now().Add(30 * time.Second); left != "" && time.Now().Before(end); {
				left = server.run(t, "ss", "-Htn", "state", "syn-recv")
			}
			if left != "" {
				t.Errorf("half-open connections are left:\n%s", left)
			}
		})
	}
}
