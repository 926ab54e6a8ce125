// Package balance_test is the conformance suite of the balancer's data planes: one set of tests
// with real packets. Every data plane passes all of them, or refuses the feature.
package balance_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/features"
	"fairlead/test/place"
	"fairlead/test/shell"

	"golang.org/x/sys/unix"
)

// The virtual addresses. Clients reach them through the host.
var (
	vip4 = netip.MustParseAddr("192.0.2.80")
	vip6 = netip.MustParseAddr("2001:db8:80::80")
)

// vip returns the virtual address of the family.
func vip(v4 bool) netip.Addr {
	if v4 {
		return vip4
	}
	return vip6
}

// far are servers outside of Fairlead, on a LAN with the host and the client.
var far = map[string]struct{ v4, v6 netip.Addr }{
	"far1": {netip.MustParseAddr("203.0.113.11"), netip.MustParseAddr("2001:db8:113::11")},
	"far2": {netip.MustParseAddr("203.0.113.12"), netip.MustParseAddr("2001:db8:113::12")},
}

// boxes are Fairlead's sandboxes.
var boxes = []string{"a", "b", "c"}

// lan is the test network of the suite: a client and a host connected by a wire, three sandboxes on
// a bridge of the host, and a LAN with the host, the client and servers.
//
//	client 198.51.100.1 ══ wire ══ 198.51.100.2 host ── bridge ── a, b, c
//	     └─ 203.0.113.100 ─── LAN ─── 203.0.113.1 ─┘
//	                     far1 .11, far2 .12
type lan struct {
	testing.TB
	*topology.World
	switched *netns.Namespace
	servers  map[string]*netns.Namespace
	plane    model.Plane
	state    model.State
	before   string
	// dialled counts the conversations.
	dialled *int
}

// of returns the same network for another test.
func (l *lan) of(t testing.TB) *lan {
	in := *l
	in.TB = t
	return &in
}

func newLAN(t testing.TB, plane model.Plane, opt topology.Options) *lan {
	t.Helper()
	opt.LooseSources = true // the client also sends through the wire from its address on the LAN
	w, err := topology.New(features.Facts(t), opt)
	if err != nil {
		t.Fatal(err)
	}
	l := &lan{TB: t, World: w, plane: plane, servers: map[string]*netns.Namespace{}, dialled: new(int)}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	l.switched = l.netns()
	l.sh(l.switched.Do, "ip link add switch type bridge && ip link set switch up && ip link set lo up")
	l.join("host", l.DoServer, l.Server().Netns.Fd(), "203.0.113.1/24", "2001:db8:113::1/64")
	l.join("client", l.DoClient, l.Client().Netns.Fd(), "203.0.113.100/24", "2001:db8:113::100/64")
	for name, at := range far {
		ns := l.netns()
		l.servers[name] = ns
		l.sh(ns.Do, "ip link set lo up")
		l.join(name, ns.Do, ns.File().Fd(), at.v4.String()+"/24", at.v6.String()+"/64")
		// Hosts outside the LAN are reachable through the host.
		l.sh(ns.Do, "ip route add default via 203.0.113.1 && ip -6 route add default via 2001:db8:113::1")
	}
	l.sh(l.DoClient, fmt.Sprintf("ip route add %s via 198.51.100.2 && ip -6 route add %s via 2001:db8:1::2", vip4,
		vip6))
	l.state = l.network()
	l.before = l.snapshot()
	l.set()
	for _, name := range boxes {
		l.serve(l.in(name), name)
	}
	for name, ns := range l.servers {
		l.serve(ns.Do, name)
	}
	return l
}

func (l *lan) netns() *netns.Namespace {
	l.Helper()
	return kerneltest.Netns(l)
}

// join connects a host to the switch with a link named lan0.
func (l *lan) join(name string, in place.Place, fd uintptr, addresses ...string) {
	l.Helper()
	l.sh(l.switched.Do,
		fmt.Sprintf("ip link add port-%s type veth peer name lan0 netns /proc/%d/fd/%d && ip link set port-%s master switch up", name, pid, fd, name))
	l.sh(in, "ip link set lan0 up; sysctl -qw net.ipv6.conf.lan0.accept_dad=0")
	for _, a := range addresses {
		nodad := ""
		if strings.Contains(a, ":") {
			nodad = " nodad"
		}
		l.sh(in, "ip addr add "+a+" dev lan0"+nodad)
	}
}

// network returns the network of the sandboxes, on a bridge.
func (l *lan) network() model.State {
	l.Helper()
	s := model.State{Networks: []model.Network{{Name: "net", Driver: model.DriverBridge, Subnets: []model.Subnet{
		{Prefix: netip.MustParsePrefix("172.30.0.0/24")}, {Prefix: netip.MustParsePrefix("fd00:30::/64")}}}}}
	for i, name := range boxes {
		box, err := l.Sandbox(name)
		if err != nil {
			l.Fatal(err)
		}
		s.Endpoints = append(s.Endpoints, model.Endpoint{Name: name, Network: "net", Sandbox: box,
			Addresses: []netip.Addr{
				netip.AddrFrom4([4]byte{172, 30, 0, byte(11 + i)}),
				netip.MustParseAddr(fmt.Sprintf("fd00:30::%d", 11+i))}})
	}
	return s
}

// in returns the place of a sandbox.
func (l *lan) in(name string) place.Place {
	return func(fn func() error) error { return l.DoSandbox(name, fn) }
}

func (l *lan) sh(in place.Place, line string) string {
	l.Helper()
	return shell.Run(l, in, line)
}

// real returns the server with a name. It has weight 1 and the port on which all of them listen.
func (l *lan) real(name string, v4 bool) model.RealServer {
	r := model.RealServer{Port: 80, Weight: 1}
	if at, outside := far[name]; outside {
		if r.Address = at.v6; v4 {
			r.Address = at.v4
		}
		return r
	}
	e, _ := l.state.Endpoint(name)
	r.Address, _ = e.Address(v4)
	r.Endpoint = name
	return r
}

// service returns a service of one family on port 8080 of the virtual address.
func (l *lan) service(proto model.Proto, v4 bool, reals ...string) model.VirtualService {
	v := model.VirtualService{Name: fmt.Sprintf("%s-%s", proto, vip(v4)), Addresses: []netip.Addr{vip(v4)},
		Ports: []model.PortRange{model.Port(8080)}, Proto: proto, Plane: l.plane}
	for _, name := range reals {
		v.Reals = append(v.Reals, l.real(name, v4))
	}
	return v
}

// set applies a state with the networks and these services to the host, and checks that the host
// has it. Verify discards the engine's list of applied objects. If nothing differs, Assume restores
// the list: the next change relies on it, as in the daemon, and does not observe the host again.
func (l *lan) set(services ...model.VirtualService) {
	l.Helper()
	if err := l.trySet(services...); err != nil {
		l.Fatal(err)
	}
	ops, err := l.Engine.Verify(context.Background())
	if err != nil || len(ops) > 0 {
		l.Errorf("the kernel's state differs from what was set: %v\n%s", err, plan.Text(ops))
		return
	}
	if err := l.Engine.Assume(); err != nil {
		l.Error(err)
	}
}

func (l *lan) trySet(services ...model.VirtualService) error {
	s := l.state
	s.Services = services
	_, err := l.Engine.Set(context.Background(), s)
	return err
}

// snapshot records everything on the host that a data plane could leave behind.
func (l *lan) snapshot() string {
	l.Helper()
	return place.Snapshot(l, l.DoServer)
}

// over removes everything, and checks that the host is in the same state as before the tests.
func (l *lan) over() {
	l.Helper()
	if err := l.Engine.TearDown(context.Background()); err != nil {
		l.Error(err)
	}
	place.Unchanged(l, l.DoServer, l.before)
}

// serve answers on port 80 and on 8080 to 8083.
func (l *lan) serve(in place.Place, name string) {
	l.Helper()
	serveAt(l, in, name, 80, 8080, 8081, 8082, 8083)
}

// serveAt answers on ports, over both protocols and families, until the test ends. Each answer
// contains the server's name and the client address that it receives. A long line gets a long
// answer.
func serveAt(t testing.TB, in place.Place, name string, ports ...int) {
	t.Helper()
	for _, port := range ports {
		place.Serve(t, in, fmt.Sprintf(":%d", port), place.Lines(func(r place.Request) string {
			return reply(name, port, r)
		}))
		var udp *net.UDPConn
		if err := in(func() (err error) { udp, err = listenUDP(port); return err }); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { udp.Close() })
		go answer(udp, name, port)
	}
}

// listenUDP opens a socket that reports the destination address of each datagram.
func listenUDP(port int) (*net.UDPConn, error) {
	udp, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
	if err != nil {
		return nil, err
	}
	raw, err := udp.SyscallConn()
	if err != nil {
		return nil, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	})
	return udp, errors.Join(err, failed)
}

// answer answers from the address to which the datagram was sent, through any link with a route to
// the client.
func answer(udp *net.UDPConn, name string, port int) {
	buf, oob := make([]byte, 1<<16), make([]byte, unix.CmsgSpace(unix.SizeofInet6Pktinfo))
	for {
		long, n, _, from, err := udp.ReadMsgUDPAddrPort(buf, oob)
		if err != nil {
			return
		}
		const index = unix.SizeofInet6Pktinfo - 4 // the offset of the interface index
		clear(oob[unix.CmsgLen(index):unix.CmsgLen(index+4)])
		client := netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		line := reply(name, port, place.Request{Text: strings.TrimSuffix(string(buf[:long]), "\n"), Client: client})
		_, _, _ = udp.WriteMsgUDPAddrPort([]byte(line+"\n"), oob[:n], from)
	}
}

// reply returns the server's name, the client address that it receives, its port and the beginning
// of the request. The reply to a request that is longer than a packet is as long as the request.
func reply(name string, port int, r place.Request) string {
	line := fmt.Sprintf("%s %s %d %s", name, r.Client.Addr(), port, r.Text[:min(len(r.Text), 8)])
	if len(r.Text) < 1500 {
		return line
	}
	return line + strings.Repeat(" ", max(0, len(r.Text)-len(line)))
}
