package attack_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"fairlead/internal/model"
	"fairlead/test/fabric"
)

// multipathClients is the number of addresses of the client. The host's multipath
// routes use each uplink for about half of them.
const multipathClients = 16

// The sandboxes of the host.
const (
	webBox  = "web"
	evilBox = "evil"
)

// TestMultipathUplinks checks that a client behind a multipath route over two uplinks reaches a
// port published via ebpf through each of them. Packets that a sandbox, or a host behind a third
// uplink, sends with the client's addresses must not arrive.
//
//	client ──┬─ switch 0 ─┬── host ──┬─ web
//	stranger ┼─ switch 1 ─┤          └─ evil
//	         └─ switch 2 ─┘
func TestMultipathUplinks(t *testing.T) {
	f := fabric.New(t, fabric.Options{Hosts: 3, Switches: 3})
	host, client, stranger := f.Hosts[0], f.Hosts[1], f.Hosts[2]
	web := newMultipath(t, host, client, stranger)
	for _, fl := range each {
		to := netip.AddrPortFrom(service(fl.v4), 8080)
		for sw := range 2 {
			if _, err := position(client.Do).sh(fmt.Sprintf("ip route replace %s via %s", to.Addr(),
				host.Address(sw, fl.v4))); err != nil {
				t.Fatal(err)
			}
			for n := range multipathClients {
				from := netip.AddrPortFrom(farClient(n, fl.v4), 0)
				if err := position(client.Do).converse(fl.proto, from, to, webBox, nonce()); err != nil {
					t.Fatalf("%s: %s through uplink %d: %v", fl, from.Addr(), sw, err)
				}
			}
		}
		for name, attacker := range map[string]position{"a sandbox": host.In(evilBox),
			"a host behind a third uplink": stranger.Do} {
			tap, err := web.tap()
			if err != nil {
				t.Fatal(err)
			}
			for n := range multipathClients {
				if err := attacker.send(forged(fl, netip.AddrPortFrom(farClient(n, fl.v4), 1234), to)); err != nil {
					t.Fatal(err)
				}
			}
			// The answer proves that all earlier packets have arrived.
			if err := attacker.converse(fl.proto, netip.AddrPort{}, to, webBox, nonce()); err != nil {
				t.Errorf("%s: %s does not reach the port with its own address: %v", fl, name, err)
			}
			if tap.received(func(frame []byte) bool { src, _, ok := ports(frame); return ok && src == 1234 }) {
				t.Errorf("%s: %s reaches the port with the client's address", fl, name)
			}
			tap.close()
		}
	}
}

// newMultipath gives the client its addresses, and the host a multipath route to
// them, an address that is on none of its uplinks, and two sandboxes. It returns the
// sandbox that serves port 8080 of the host.
func newMultipath(t *testing.T, host, client, stranger *fabric.Host) position {
	t.Helper()
	script := "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0\n"
	for n := range multipathClients {
		script += fmt.Sprintf("ip addr add %s/32 dev lo; ip addr add %s/128 dev lo nodad\n", farClient(n, true),
			farClient(n, false))
	}
	routes := ""
	for _, v4 := range []bool{true, false} {
		routes += fmt.Sprintf("ip %s route add %s nexthop via %s nexthop via %s\n",
			map[bool]string{true: "-4", false: "-6"}[v4],
			map[bool]string{true: "203.0.113.0/24", false: "2001:db8:c::/64"}[v4], client.Address(0, v4),
			client.Address(1, v4))
	}
	addresses := fmt.Sprintf("ip addr add %s/32 dev lo; ip addr add %s/128 dev lo nodad\n", service(true),
		service(false))
	strangers := fmt.Sprintf("ip route add %s via %s; ip route add %s via %s", service(true), host.Address(2, true),
		service(false), host.Address(2, false))
	for in, script := range map[*fabric.Host]string{client: script, host: addresses + routes, stranger: strangers} {
		if _, err := position(in.Do).sh(script); err != nil {
			t.Fatal(err)
		}
	}
	s := model.State{Networks: []model.Network{{Name: "net", Driver: model.DriverBridge,
		Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("172.30.0.0/24")},
			{Prefix: netip.MustParsePrefix("fd00:30::/64")}}}}}
	for _, name := range []string{webBox, evilBox} {
		s.Endpoints = append(s.Endpoints, model.Endpoint{Name: name, Network: "net", Sandbox: host.Sandbox(name)})
	}
	for _, proto := range []model.Proto{model.TCP, model.UDP} {
		s.Publishes = append(s.Publishes, model.Publish{Endpoint: webBox, Via: model.ViaEBPF, Proto: proto,
			HostPorts: model.Port(8080), Ports: model.Port(workPort)})
	}
	if _, err := host.Engine.Set(context.Background(), s); err != nil {
		t.Fatal(err)
	}
	web := position(host.In(webBox))
	server, err := web.serve(webBox, workPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.close)
	return web
}

// service is the host's address that clients dial. The kernel prefers the next hop of a multipath
// route whose link has the source address of the answer; no uplink has this address.
func service(v4 bool) netip.Addr {
	if v4 {
		return netip.MustParseAddr("203.0.114.1")
	}
	return netip.MustParseAddr("2001:db8:d::1")
}

// farClient is an address of the client behind the multipath route.
func farClient(n int, v4 bool) netip.Addr {
	if v4 {
		return netip.AddrFrom4([4]byte{203, 0, 113, byte(n + 1)})
	}
	return netip.MustParseAddr(fmt.Sprintf("2001:db8:c::%x", n+1))
}
