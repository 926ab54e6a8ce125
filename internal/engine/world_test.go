package engine_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/kernel"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/shell"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const (
	// patience bounds how long a packet is waited for that should come, on a
	// machine that has much else to do.
	patience = 30 * time.Second
	// silence is how long nobody must answer to be taken for deaf.
	silence = time.Second
	// again is how long after a datagram the next is sent: one may be lost.
	again = 200 * time.Millisecond
)

// place runs a function on a thread inside a namespace.
type place func(func() error) error

func probe(t testing.TB) plan.Facts {
	t.Helper()
	facts, err := kernel.Probe()
	if err != nil {
		t.Fatal(err)
	}
	return facts
}

// world makes a topology that is closed after the test.
func world(t testing.TB) *topology.World {
	t.Helper()
	w, err := topology.New(probe(t), topology.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func in(w *topology.World, sandbox string) place {
	return func(fn func() error) error { return w.DoSandbox(sandbox, fn) }
}

// dual is a network with both families and one sandbox for each name.
func dual(t testing.TB, w *topology.World, d model.Driver, names ...string) model.State {
	t.Helper()
	s := model.State{Networks: []model.Network{{Name: "net", Driver: d, Subnets: []model.Subnet{
		{Prefix: netip.MustParsePrefix("172.30.0.0/24")}, {Prefix: netip.MustParsePrefix("fd00:30::/64")}}}}}
	for _, name := range names {
		box, err := w.Sandbox(name)
		if err != nil {
			t.Fatal(err)
		}
		s.Endpoints = append(s.Endpoints, model.Endpoint{Name: name, Network: "net", Sandbox: box})
	}
	return s
}

// publish adds a publish of one port, or of equal ranges from there on.
func publish(s *model.State, endpoint string, via model.Via, proto model.Proto, host, port uint16) {
	s.Publishes = append(s.Publishes, model.Publish{Endpoint: endpoint, Via: via, Proto: proto,
		HostPorts: model.Port(host), Ports: model.Port(port)})
}

func mustSet(t testing.TB, w *topology.World, s model.State) model.State {
	t.Helper()
	full, err := w.Engine.Set(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return full
}

// undrifted fails the test if the kernel does not hold what is wanted.
func undrifted(t testing.TB, w *topology.World) {
	t.Helper()
	ops, err := w.Engine.Verify(context.Background())
	if err != nil || len(ops) != 0 {
		t.Errorf("strayed: %v\n%s", err, plan.Text(ops))
	}
}

func sh(t testing.TB, in place, line string) string {
	t.Helper()
	return shell.Run(t, in, line)
}

func onServer(t testing.TB, w *topology.World, line string) string {
	t.Helper()
	return sh(t, w.DoServer, line)
}

// snapshot writes down everything on the server host that we could leave.
func snapshot(t testing.TB, w *topology.World) string {
	t.Helper()
	// Carriers, the ends of checks for duplicates and link-local addresses come
	// by themselves, and ip cannot name a namespace that is just ending. The
	// kernel chooses the address of a veth that has to be made again.
	return onServer(t, w, "ip -o -d link 2>&1 | sed '/^Error: Peer netns/d; s/^[0-9]*: //; s/NO-CARRIER,//; s/,LOWER_UP//; s/ state [A-Z]*//; s/ promiscuity.*//; s/@if[0-9]*//; s/ link-netnsid.*//; /^fv-/s/link.ether [0-9a-f:]*//' | sort;"+
		" ip -o addr | sed 's/^[0-9]*: //; s/ tentative//' | grep -v fe80 | sort; (ip route; ip -6 route | grep -v fe80) | sed 's/ linkdown//' | sort;"+
		" nft -s list ruleset; sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding net.bridge net.ipv4.conf.all; ss -Hltun | sort")
}

func unchanged(t testing.TB, w *topology.World, before string) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(snapshot(t, w), "\n")); diff != "" {
		t.Errorf("the host is not as it was before (-):\n%s", diff)
	}
}

// serve answers every line and datagram to a port of the place with the name,
// and with what was said.
func serve(t testing.TB, in place, name, at string) {
	t.Helper()
	listen(t, in, at, func(conn net.Conn) {
		for lines := bufio.NewReader(conn); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			fmt.Fprint(conn, name, " ", line)
		}
	}, func(datagram []byte) []byte { return fmt.Appendf(nil, "%s %.32s", name, datagram) })
}

// listen serves a port of the place, over TCP and UDP, until the test ends.
func listen(t testing.TB, in place, at string, converse func(net.Conn), reply func(datagram []byte) []byte) {
	t.Helper()
	var l net.Listener
	var c net.PacketConn
	if err := in(func() (err error) {
		if l, err = net.Listen("tcp", at); err != nil {
			return err
		}
		c, err = net.ListenPacket("udp", at)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); c.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				converse(conn)
			}()
		}
	}()
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(reply(buf[:n]), from)
		}
	}()
}

// talk is a conversation with whoever answers, open until the test ends.
type talk struct {
	t    testing.TB
	conn net.Conn
}

func dial(t testing.TB, from place, proto model.Proto, to string) talk {
	t.Helper()
	talk := talk{t: t}
	if err := from(func() (err error) {
		talk.conn, err = net.DialTimeout(string(proto), to, patience)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { talk.conn.Close() })
	return talk
}

// dialAll begins a conversation of each protocol with each address.
func dialAll(t testing.TB, from place, addrs []string) []talk {
	t.Helper()
	var talks []talk
	for _, proto := range protos {
		for _, addr := range addrs {
			talks = append(talks, dial(t, from, proto, addr))
		}
	}
	return talks
}

// ask says a line, over UDP again and again, until it is answered, and returns by
// whom. What comes late is no answer: neither one to an earlier line, nor, over
// UDP, an error about an earlier datagram, which the next one meets.
func (t talk) ask() (string, error) {
	udp := t.conn.RemoteAddr().Network() == "udp"
	line := fmt.Sprintf(" %d\n", time.Now().UnixNano())
	buf := make([]byte, 256)
	for deadline := time.Now().Add(patience); ; {
		wait := deadline
		if udp {
			wait = time.Now().Add(again)
		}
		err := t.conn.SetDeadline(wait)
		if err == nil {
			_, err = t.conn.Write([]byte(line[1:]))
		}
		lost, name := udp && isRefusal(err), ""
		for current := false; err == nil && !current; {
			var n int
			n, err = t.conn.Read(buf)
			name, current = strings.CutSuffix(string(buf[:n]), line)
			lost = udp && errors.Is(err, os.ErrDeadlineExceeded)
		}
		if !lost || time.Now().After(deadline) {
			return name, err
		}
	}
}

// hears fails the test unless the conversation is answered by want.
func (t talk) hears(want string) {
	t.t.Helper()
	if got, err := t.ask(); err != nil || got != want {
		t.t.Errorf("%s answers %q, %v; want %q", t.conn.RemoteAddr(), got, err, want)
	}
}

// isRefused fails the test unless the host answers that nobody is there.
func (t talk) isRefused() {
	t.t.Helper()
	if got, err := t.ask(); !isRefusal(err) {
		t.t.Errorf("%s %s answers %q, %v; want a refusal", t.conn.RemoteAddr().Network(), t.conn.RemoteAddr(), got, err)
	}
}

// hasEnded fails the test unless the kernel tells the process that its socket
// is ended.
func (t talk) hasEnded() {
	t.t.Helper()
	err := t.conn.SetDeadline(time.Now().Add(patience))
	if err == nil {
		_, err = t.conn.Read(make([]byte, 256))
	}
	if !errors.Is(err, unix.ECONNABORTED) {
		t.t.Errorf("%s %s is read: %v; want %v", t.conn.RemoteAddr().Network(), t.conn.RemoteAddr(), err, unix.ECONNABORTED)
	}
	if _, err := t.conn.Write([]byte("hello\n")); err == nil {
		t.t.Errorf("%s %s sends though it is ended", t.conn.RemoteAddr().Network(), t.conn.RemoteAddr())
	}
}

// endsBy fails the test unless the conversation of a process of the host has
// ended, which eBPF led to the endpoint itself and other ways did not.
func (t talk) endsBy(via model.Via) {
	t.t.Helper()
	if via == model.ViaEBPF {
		t.hasEnded()
	} else {
		t.isRefused()
	}
}

// isRefusal reports whether the error says that nobody is there.
func isRefusal(err error) bool {
	return errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.ECONNREFUSED)
}

// hears asks once on a new conversation.
func hears(t testing.TB, from place, proto model.Proto, to, want string) {
	t.Helper()
	var conn net.Conn
	if err := from(func() (err error) { conn, err = net.DialTimeout(string(proto), to, patience); return err }); err != nil {
		t.Errorf("%v; want an answer of %q", err, want)
		return
	}
	defer conn.Close()
	talk{t, conn}.hears(want)
}

// both lists an address and port of each family.
func both(v4, v6 string, port int) []string {
	return []string{fmt.Sprintf("%s:%d", v4, port), fmt.Sprintf("[%s]:%d", v6, port)}
}

func server(port int) []string {
	return both(topology.ServerAddr4.String(), topology.ServerAddr6.String(), port)
}

func local(port int) []string { return both("127.0.0.1", "::1", port) }

func everywhere(port int) []string { return slices.Concat(server(port), local(port)) }

var (
	protos = []model.Proto{model.TCP, model.UDP}
	modes  = []model.Via{model.ViaNAT, model.ViaProxy, model.ViaEBPF}
	// direct are the ways whose flows the kernel leads from end to end.
	direct = []model.Via{model.ViaNAT, model.ViaEBPF}
)
