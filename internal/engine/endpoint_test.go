package engine_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/test/cpu"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

// TestEndpointSettings checks that an endpoint's hardware address, routes and
// default route are those that its state names, with each driver.
func TestEndpointSettings(t *testing.T) {
	for _, d := range []model.Driver{model.DriverBridge, model.DriverRouted} {
		t.Run(string(d), func(t *testing.T) {
			w := world(t)
			before := snapshot(t, w)
			s := dual(t, w, d, "web", "peer")
			s.Endpoints[0].MAC = "02:00:00:00:00:07"
			s.Endpoints[0].NoDefault = true
			s.Endpoints[0].Routes = []model.Route{
				{To: netip.MustParsePrefix("198.51.100.0/24"), Via: netip.MustParseAddr("172.30.0.1")},
				{To: netip.MustParsePrefix("2001:db8:1::/64"), Via: netip.MustParseAddr("fd00:30::1")}}
			s = mustSet(t, w, s)
			undrifted(t, w)
			if got := sh(t, in(w, "web"),
				"cat /sys/class/net/eth0/address 2>/dev/null; ip -o link show eth0"); !strings.Contains(got,
				"02:00:00:00:00:07") {
				t.Errorf("hardware address: %s", got)
			}
			if got := sh(t, in(w, "web"), "ip route show default; ip -6 route show default"); got != "" {
				t.Errorf("unwanted default route: %s", got)
			}
			for _, to := range []netip.Addr{topology.ClientAddr4, topology.ClientAddr6} {
				serve(t, w.DoClient, "lan", netip.AddrPortFrom(to, 90).String())
				if d == model.DriverBridge { // the LAN has no route back to a routed one
					dial(t, in(w, "web"), model.TCP, netip.AddrPortFrom(to, 90).String()).hears("lan")
				}
			}
			s.Endpoints[0].NoDefault, s.Endpoints[0].Routes = false, nil
			mustSet(t, w, s)
			undrifted(t, w)
			if got := sh(t, in(w, "web"),
				"ip route show default; ip -6 route show default; ip route; ip -6 route"); strings.Count(got,
				"default") != 4 ||
				strings.Contains(got, "198.51.100.0") || strings.Contains(got, "2001:db8:1::") {
				t.Errorf("the default routes are missing, or the other routes remain: %s", got)
			}
			mustSet(t, w, model.State{})
			unchanged(t, w, before)
		})
	}
}

// TestLimitAppliesToEachDirection sends a burst that is larger than the limit
// lets through, and counts the datagrams that arrive.
func TestLimitAppliesToEachDirection(t *testing.T) {
	for _, d := range []model.Driver{model.DriverBridge, model.DriverRouted} {
		t.Run(string(d), func(t *testing.T) {
			w := world(t)
			s := dual(t, w, d, "web", "peer")
			const burst = 800
			arrives := func(from, to string) int {
				t.Helper()
				s = mustSet(t, w, s)
				undrifted(t, w)
				return flood(t, in(w, from), in(w, to), netip.AddrPortFrom(endpointAddr(s, to), 9), burst)
			}
			if in, out := arrives("peer", "web"), arrives("web", "peer"); in != burst || out != burst {
				t.Errorf("without a limit %d and %d of %d arrive", in, out, burst)
			}
			s.Endpoints[0].Limit = model.Limit{In: 1_000_000}
			if in, out := arrives("peer", "web"), arrives("web", "peer"); in == burst || in == 0 || out != burst {
				t.Errorf("limit inwards: %d of %d arrive, outwards %d", in, burst, out)
			}
			s.Endpoints[0].Limit = model.Limit{Out: 1_000_000}
			if in, out := arrives("peer", "web"), arrives("web", "peer"); in != burst || out == burst || out == 0 {
				t.Errorf("limit outwards: %d of %d arrive, inwards %d", out, burst, in)
			}
			s.Endpoints[0].Limit = model.Limit{}
			if in, out := arrives("peer", "web"), arrives("web", "peer"); in != burst || out != burst {
				t.Errorf("with the limit removed %d and %d of %d arrive", in, out, burst)
			}
		})
	}
}

func endpointAddr(s model.State, name string) netip.Addr {
	e, _ := s.Endpoint(name)
	a, _ := e.Address(true)
	return a
}

// flood sends a first datagram until it is answered, then n datagrams at once
// and a last one. It returns how many of the n arrive before the last.
func flood(t *testing.T, from, to place.Place, at netip.AddrPort, n int) int {
	t.Helper()
	return floodBy(t, from, to, at, at, n)
}

// floodBy is flood for a client that sends to at, which reaches server4.
func floodBy(t *testing.T, from, to place.Place, server4, at netip.AddrPort, n int) (arrived int) {
	t.Helper()
	server, err := place.ListenPacket(to, server4.String())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	growBuffer(t, server.(*net.UDPConn))
	go countLarge(server)
	if err := from(func() error {
		client, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		defer client.Close()
		if err := cpu.Stay(); err != nil { // packets sent from two CPUs may overtake each other
			return err
		}
		if _, err := asked(client, "first"); err != nil {
			return err
		}
		for range n {
			if _, err := client.Write(make([]byte, 1000)); err != nil {
				return err
			}
		}
		arrived, err = asked(client, "last")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return arrived
}

// countLarge answers every small datagram with the number of large ones received
// so far.
func countLarge(server net.PacketConn) {
	count := 0
	for b := make([]byte, 2000); ; {
		n, peer, err := server.ReadFrom(b)
		switch {
		case err != nil:
			return
		case n > 100:
			count++
		default:
			_, _ = server.WriteTo(fmt.Appendf(nil, "%s %d", b[:n], count),
				peer) // should it be lost, the next is answered
		}
	}
}

// asked sends a word until it is answered, and returns how many large datagrams
// the server received before it.
func asked(client *net.UDPConn, word string) (count int, err error) {
	b := make([]byte, 100)
	for deadline := time.Now().Add(place.Timeout); time.Now().Before(deadline); {
		if _, err := client.Write([]byte(word)); err != nil {
			return 0, err
		}
		if err := client.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
			return 0, err
		}
		n, err := client.Read(b)
		if _, scan := fmt.Sscanf(string(b[:n]), word+" %d", &count); err == nil && scan == nil {
			return count, nil
		}
	}
	return 0, fmt.Errorf("nothing arrives at %s", client.RemoteAddr())
}

// growBuffer sets a receive buffer that is large enough for a test's burst.
func growBuffer(t *testing.T, conn *net.UDPConn) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	e := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE,
			8<<20)
	})
	if err := errors.Join(e, err); err != nil {
		t.Fatal(err)
	}
}

// TestWhatHasNoRulesIsNotTracked checks that no connection is tracked before a
// rule needs it: with our table, every packet of the host passes conntrack.
func TestWhatHasNoRulesIsNotTracked(t *testing.T) {
	w := world(t)
	s := dual(t, w, model.DriverRouted, "web")
	s = mustSet(t, w, s)
	undrifted(t, w)
	tracked := func() bool {
		t.Helper()
		for _, route := range s.Networks[0].Subnets {
			if err := w.Route(route.Prefix); err != nil {
				t.Fatal(err)
			}
		}
		e, _ := s.Endpoint("web")
		for _, a := range e.Addresses {
			dial(t, w.DoClient, model.TCP, netip.AddrPortFrom(a, 80).String()).hears("web")
		}
		return strings.TrimSpace(onServer(t, w, "cat /proc/sys/net/netfilter/nf_conntrack_count")) != "0"
	}
	serve(t, in(w, "web"), "web", ":80")
	if tracked() {
		t.Error("packets to a routed sandbox are tracked although no rule needs it")
	}
	publish(&s, "web", model.ViaNAT, model.TCP, 8080, 80)
	mustSet(t, w, s)
	undrifted(t, w)
	if !tracked() {
		t.Error("with a port published via nat nothing is tracked: this test cannot detect tracking")
	}
}
