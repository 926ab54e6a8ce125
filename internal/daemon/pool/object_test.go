package pool_test

import (
	"net/netip"
	"testing"

	"fairlead/internal/daemon/pool"
	"fairlead/internal/model"
)

// TestObjectOf names what connections belong to, before and after the service has lost a real server.
func TestObjectOf(t *testing.T) {
	one, two := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	v := model.VirtualService{Name: "web", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.80")}, Proto: model.TCP,
		Ports: []model.PortRange{model.Port(80)},
		Reals: []model.RealServer{{Address: one, Port: 8080}, {Address: two}}}
	with := pool.New(v, nil, inputs())
	without := with.Without(netip.AddrPortFrom(one, 8080))
	udp := v
	udp.Name, udp.Proto = "dns", model.UDP
	before := map[string]*pool.Pool{"web": with, "dns": pool.New(udp, nil, inputs())}
	after := map[string]*pool.Pool{"web": without}
	for _, c := range []struct {
		frontend, server string
		pools            []map[string]*pool.Pool
		want             string
	}{
		{"192.0.2.80:80", "10.0.0.1:8080", []map[string]*pool.Pool{before, after}, "service web real 10.0.0.1:8080"},
		{"192.0.2.80:80", "10.0.0.1:8080", []map[string]*pool.Pool{after}, "service web"},
		{"192.0.2.80:80", "10.0.0.2:80", []map[string]*pool.Pool{after}, "service web real 10.0.0.2"},
		{"192.0.2.80:81", "10.0.0.1:8080", []map[string]*pool.Pool{before}, "service at 192.0.2.80:81"},
		{"192.0.2.81:80", "10.0.0.1:8080", []map[string]*pool.Pool{before}, "service at 192.0.2.81:80"},
	} {
		frontend, server := netip.MustParseAddrPort(c.frontend), netip.MustParseAddrPort(c.server)
		if got := pool.ObjectOf(frontend, server, c.pools); got != c.want {
			t.Errorf("%s to %s: %s, want %s", c.frontend, c.server, got, c.want)
		}
	}
}
