package engine_test

import (
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

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/features"
	"fairlead/test/place"
	"fairlead/test/shell"

	"golang.org/x/sys/unix"
)

const (
	// silence is how long the tests wait before they conclude that no answer
	// will come.
	silence = time.Second
	// again is the time between two datagrams of a retry, as one may be lost.
	again = 200 * time.Millisecond
)

// world makes a topology that is closed after the test.
func world(t testing.TB) *topology.World {
	t.Helper()
	w, err := topology.New(features.Facts(t), topology.Options{})
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

// shared returns a function that returns one world to all subtests that leave it as they found it. After a subtest has
// failed, the next one gets a new world.
func shared(t *testing.T) func(sub *testing.T) *topology.World {
	var w *topology.World
	return func(sub *testing.T) *topology.World {
		sub.Helper()
		if w == nil {
			w = world(t)
		}
		sub.Cleanup(func() {
			if sub.Failed() {
				w = nil
			}
		})
		return w
	}
}

func in(w *topology.World, sandbox string) place.Place {
	return func(fn func() error) error { return w.DoSandbox(sandbox, fn) }
}

// dual returns a network with both families and one sandbox for each name.
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

// undrifted fails the test if Verify lists a difference from the applied state.
func undrifted(t testing.TB, w *topology.World) {
	t.Helper()
	ops, err := w.Engine.Verify(context.Background())
	if err != nil || len(ops) != 0 {
		t.Errorf("the host differs from the applied state: %v\n%s", err, plan.Text(ops))
	}
}

func sh(t testing.TB, in place.Place, line string) string {
	t.Helper()
	return shell.Run(t, in, line)
}

func onServer(t testing.TB, w *topology.World, line string) string {
	t.Helper()
	return sh(t, w.DoServer, line)
}

// snapshot returns all state of the server host that Fairlead could leave behind.
func snapshot(t testing.TB, w *topology.World) string {
	t.Helper()
	return place.Snapshot(t, w.DoServer)
}

func unchanged(t testing.TB, w *topology.World, before string) {
	t.Helper()
	place.Unchanged(t, w.DoServer, before)
}

// serve answers every line and datagram at an address of the place with the name
// and the received text, of which it shortens long ones.
func serve(t testing.TB, in place.Place, name, at string) {
	t.Helper()
	place.Answer(t, in, at, func(r place.Request) string { return fmt.Sprintf("%s %.32s", name, r.Text) })
}

// talk is a TCP connection or connected UDP socket, open until the test ends.
type talk struct {
	t    testing.TB
	conn net.Conn
}

func dial(t testing.TB, from place.Place, proto model.Proto, to string) talk {
	t.Helper()
	talk := talk{t: t}
	var err error
	if talk.conn, err = place.Dial(from, string(proto), to, place.Timeout); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { talk.conn.Close() })
	return talk
}

// dialAll dials each address over each protocol.
func dialAll(t testing.TB, from place.Place, addrs []string) []talk {
	t.Helper()
	var talks []talk
	for _, proto := range protos {
		for _, addr := range addrs {
			talks = append(talks, dial(t, from, proto, addr))
		}
	}
	return talks
}

// ask sends a line, over UDP repeatedly, until it is answered, and returns the
// name that the server answers with. It ignores answers to earlier lines and,
// over UDP, errors about earlier datagrams that the next one reports.
func (t talk) ask() (string, error) {
	udp := t.conn.RemoteAddr().Network() == "udp"
	line := fmt.Sprintf(" %d\n", time.Now().UnixNano())
	buf := make([]byte, 256)
	for deadline := time.Now().Add(place.Timeout); ; {
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

// hears fails the test unless the server named want answers.
func (t talk) hears(want string) {
	t.t.Helper()
	if got, err := t.ask(); err != nil || got != want {
		t.t.Errorf("%s answers %q, %v; want %q", t.conn.RemoteAddr(), got, err, want)
	}
}

// isRefused fails the test unless the host refuses: with a TCP reset or an ICMP
// error.
func (t talk) isRefused() {
	t.t.Helper()
	if got, err := t.ask(); !isRefusal(err) {
		t.t.Errorf("%s %s answers %q, %v; want a refusal", t.conn.RemoteAddr().Network(), t.conn.RemoteAddr(), got, err)
	}
}

// hasEnded fails the test unless the kernel has aborted the socket
// (ECONNABORTED).
func (t talk) hasEnded() {
	t.t.Helper()
	err := t.conn.SetDeadline(time.Now().Add(place.Timeout))
	if err == nil {
		_, err = t.conn.Read(make([]byte, 256))
	}
	if !errors.Is(err, unix.ECONNABORTED) {
		t.t.Errorf("%s %s is read: %v; want %v", t.conn.RemoteAddr().Network(), t.conn.RemoteAddr(), err,
			unix.ECONNABORTED)
	}
	if _, err := t.conn.Write([]byte("hello\n")); err == nil {
		t.t.Errorf("%s %s still sends although it has ended", t.conn.RemoteAddr().Network(), t.conn.RemoteAddr())
	}
}

// endsBy fails the test unless the flow of a host process has ended. Via ebpf
// its socket was connected to the endpoint directly, so the socket is aborted;
// with other modes the next packet is refused.
func (t talk) endsBy(via model.Via) {
	t.t.Helper()
	if via == model.ViaEBPF {
		t.hasEnded()
	} else {
		t.isRefused()
	}
}

// isRefusal reports whether the error is a refusal: ECONNRESET or ECONNREFUSED.
func isRefusal(err error) bool {
	return errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.ECONNREFUSED)
}

// hears dials and fails the test unless the server named want answers.
func hears(t testing.TB, from place.Place, proto model.Proto, to, want string) {
	t.Helper()
	conn, err := place.Dial(from, string(proto), to, place.Timeout)
	if err != nil {
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
	// direct are the publish modes whose flows the kernel forwards without a
	// proxy.
	direct = []model.Via{model.ViaNAT, model.ViaEBPF}
)
