package engine_test

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/place"
)

// outside returns a world in which the sandboxes open connections to the client's host,
// and the state with such a network.
func outside(t *testing.T, w *topology.World, names ...string) model.State {
	t.Helper()
	s := dual(t, w, model.DriverBridge, names...)
	s.Networks[0].Outbound = model.OutboundEBPF
	return s
}

// seenFrom answers each request with the address that the server sees.
func seenFrom(t testing.TB, in place.Place, at string) {
	t.Helper()
	place.Answer(t, in, at, func(r place.Request) string { return r.Client.String() + " " + r.Text })
}

// source returns the address that the server sees of the connection.
func (t talk) source() netip.AddrPort {
	t.t.Helper()
	got, err := t.ask()
	if err != nil {
		t.t.Fatalf("%s: %v", t.conn.RemoteAddr(), err)
	}
	return netip.MustParseAddrPort(got)
}

// echoed fails the test unless the address answers an ICMP echo request.
func echoed(t testing.TB, from place.Place, to string) {
	t.Helper()
	var c net.Conn
	err := from(func() (err error) { c, err = net.Dial("ip4:icmp", to); return err })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	request := []byte{8, 0, 0xf7, 0xfd, 0, 1, 0, 1} // echo request, code, checksum, id, number
	answer := make([]byte, 256)
	if err = c.SetDeadline(time.Now().Add(place.Timeout)); err == nil {
		_, err = c.Write(request)
	}
	if err == nil {
		_, err = c.Read(answer)
	}
	if err != nil {
		t.Errorf("%s does not answer an echo request: %v", to, err)
	}
}

// dropForwarded is a firewall that drops all that the host forwards.
const dropForwarded = `nft add table inet t;
	nft add chain inet t c '{ type filter hook forward priority 0; policy drop; }'`

const askedServer = "198.51.100.1:9000"

// TestOutboundByEBPF opens connections from a sandbox, past a firewall of the host that
// drops all that is forwarded. Without it, the kernel translates what the programs leave:
// ICMP and IPv6.
func TestOutboundByEBPF(t *testing.T) {
	w := world(t)
	before := snapshot(t, w)
	s := outside(t, w, "web", "app")
	mustSet(t, w, s)
	seenFrom(t, w.DoClient, askedServer)
	seenFrom(t, w.DoClient, "[2001:db8:1::1]:9000")
	echo(t, w.DoClient, "198.51.100.1:9001")
	echoed(t, in(w, "web"), "198.51.100.1")
	for _, proto := range protos {
		if from := dial(t, in(w, "web"), proto, "[2001:db8:1::1]:9000").source(); from.Addr() != topology.ServerAddr6 {
			t.Errorf("over IPv6, %s comes from %s", proto, from)
		}
	}
	onServer(t, w, dropForwarded)
	for _, name := range []string{"web", "app"} {
		for _, proto := range protos {
			from := dial(t, in(w, name), proto, askedServer).source()
			if from.Addr() != topology.ServerAddr4 || !plan.IsOutboundPort(from.Port()) {
				t.Errorf("%s of %s comes from %s", proto, name, from)
			}
		}
	}
	dial(t, in(w, "web"), model.TCP, "198.51.100.1:9001").returns(bytes.Repeat([]byte("0123456789abcdef"), 1<<16))
	dial(t, in(w, "web"), model.UDP, "198.51.100.1:9001").returns(bytes.Repeat([]byte("fragments"), 1000))
	dial(t, in(w, "web"), model.UDP, "198.51.100.1:9").isRefused()
	undrifted(t, w)
	onServer(t, w, "nft delete table inet t")
	mustSet(t, w, model.State{})
	unchanged(t, w, before)
}

// TestOutboundByNFT is the same firewall without eBPF: it is obeyed. The kernel keeps the
// ports of connections, but not those of the programs if another network has these.
func TestOutboundByNFT(t *testing.T) {
	w := world(t)
	s := dual(t, w, model.DriverBridge, "web")
	mustSet(t, w, s)
	seenFrom(t, w.DoClient, askedServer)
	from := func(proto model.Proto, port uint16) uint16 {
		local := netip.AddrPortFrom(netip.MustParseAddr("172.30.0.2"), port)
		return dialFrom(t, in(w, "web"), proto, local, askedServer).source().Port()
	}
	for _, proto := range protos {
		for _, port := range []uint16{12345, 40001, 61234} {
			if got := from(proto, port); got != port {
				t.Errorf("%s from port %d comes from port %d", proto, port, got)
			}
		}
	}
	s.Networks = append(s.Networks, model.Network{Name: "other", Driver: model.DriverBridge,
		Outbound: model.OutboundEBPF, Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("172.31.0.0/24")}}})
	mustSet(t, w, s)
	for _, proto := range protos {
		if got := from(proto, 40002); got != 40002 {
			t.Errorf("%s from port 40002 comes from port %d", proto, got)
		}
		for _, port := range []uint16{12346, 61235} {
			if got := from(proto, port); plan.IsOutboundPort(got) {
				t.Errorf("%s from port %d comes from port %d", proto, port, got)
			}
		}
	}
	onServer(t, w, dropForwarded)
	if _, err := place.Dial(in(w, "web"), "tcp", askedServer, silence); err == nil {
		t.Error("the firewall does not stop the connection")
	}
}

// TestOutboundNeverCollides opens many connections from two sandboxes with the same source
// ports to one server, next to sockets of the host with half of the ports. Each connection
// has a port of its own, and gets its own answers.
func TestOutboundNeverCollides(t *testing.T) {
	w := world(t)
	mustSet(t, w, outside(t, w, "web", "app"))
	seenFrom(t, w.DoClient, askedServer)
	taken := map[netip.AddrPort]string{}
	err := w.DoServer(func() error {
		for port := plan.FirstOutboundPort; port <= 65535; port += 2 {
			if !plan.IsOutboundPort(uint16(port)) {
				continue
			}
			c, err := net.ListenUDP("udp4", &net.UDPAddr{Port: port})
			if err != nil {
				return err
			}
			t.Cleanup(func() { c.Close() })
			taken[netip.AddrPortFrom(topology.ServerAddr4, uint16(port))] = "the host"
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[model.Proto]map[netip.AddrPort]string{model.UDP: taken, model.TCP: {}}
	for n := range 150 {
		for name, addr := range map[string]string{"web": "172.30.0.2", "app": "172.30.0.3"} {
			for _, proto := range protos {
				local := netip.AddrPortFrom(netip.MustParseAddr(addr), uint16(20000+n))
				from := dialFrom(t, in(w, name), proto, local, askedServer).source()
				if other, ok := seen[proto][from]; ok {
					t.Errorf("%s: %s %d has the port of %s: %s", proto, name, n, other, from)
				}
				seen[proto][from] = fmt.Sprint(name, " ", n)
			}
		}
	}
	if n := len(seen[model.TCP]); n != 300 {
		t.Errorf("%d TCP connections", n)
	}
}

// TestOutboundKeepsAnswersOfPublishes publishes ports via nat. The answers of the sandbox
// keep the port that the client dialled.
func TestOutboundKeepsAnswersOfPublishes(t *testing.T) {
	w := world(t)
	s := outside(t, w, "web")
	for _, proto := range protos {
		publish(&s, "web", model.ViaNAT, proto, 8080, 80)
	}
	mustSet(t, w, s)
	serve(t, in(w, "web"), "web", ":80")
	for _, proto := range protos {
		for _, at := range server(8080) {
			hears(t, w.DoClient, proto, at, "web")
		}
	}
}

// TestOutboundDrift lets another program detach the programs.
func TestOutboundDrift(t *testing.T) {
	w := world(t)
	mustSet(t, w, outside(t, w, "web"))
	seenFrom(t, w.DoClient, askedServer)
	link := topology.EndpointLink("web")
	onServer(t, w, "ip link set "+link+" down && ip link delete "+link)
	if _, err := w.Engine.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	undrifted(t, w)
	if from := dial(t, in(w, "web"), model.TCP, askedServer).source(); !plan.IsOutboundPort(from.Port()) {
		t.Errorf("after the repair, TCP comes from %s", from)
	}
}

// TestOutboundNeedsPorts refuses outbound ebpf while the host connects from its ports.
func TestOutboundNeedsPorts(t *testing.T) {
	w := world(t)
	onServer(t, w, "sysctl -qw net.ipv4.ip_local_port_range='32768 62000'")
	_, err := w.Engine.Set(t.Context(), outside(t, w, "web"))
	if err == nil || !strings.Contains(err.Error(), "ip_local_port_range") || !strings.Contains(err.Error(),
		plan.OutboundPorts) {
		t.Errorf("outbound ebpf while the host connects from its ports: %v", err)
	}
}
