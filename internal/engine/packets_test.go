package engine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/model"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

// echo serves a port of the place that returns what it receives.
func echo(t testing.TB, in place.Place, at string) {
	t.Helper()
	place.Serve(t, in, at, place.Echo)
	place.ServeUDP(t, in, at, place.EchoDatagram)
}

// dialFrom dials from a local address that several sockets share.
func dialFrom(t testing.TB, from place.Place, proto model.Proto, local netip.AddrPort, to string) talk {
	t.Helper()
	var bound net.Addr = net.TCPAddrFromAddrPort(local)
	if proto == model.UDP {
		bound = net.UDPAddrFromAddrPort(local)
	}
	d := net.Dialer{Timeout: place.Timeout, LocalAddr: bound, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
	}}
	talk := talk{t: t}
	if err := from(func() (err error) { talk.conn, err = d.Dial(string(proto), to); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { talk.conn.Close() })
	return talk
}

// returns fails the test unless exactly the sent bytes come back.
func (t talk) returns(sent []byte) {
	t.t.Helper()
	got := make([]byte, len(sent)+1)
	err := t.conn.SetDeadline(time.Now().Add(place.Timeout))
	if err == nil {
		_, err = t.conn.Write(sent)
	}
	n := 0
	for err == nil && n < len(sent) {
		var more int
		more, err = t.conn.Read(got[n:])
		n += more
	}
	if err != nil || !bytes.Equal(got[:n], sent) {
		t.t.Errorf("%s %s: of %d bytes %d came back, %v", t.conn.RemoteAddr().Network(), t.conn.RemoteAddr(), len(sent),
			n, err)
	}
}

// TestOneSourcePortToManyHostPorts dials, from one source port, all host ports
// that map to one container port. For the endpoint they must be different flows.
func TestOneSourcePortToManyHostPorts(t *testing.T) {
	for _, via := range modes {
		t.Run(string(via), func(t *testing.T) {
			w := world(t)
			s := dual(t, w, model.DriverBridge, "web")
			for _, proto := range protos {
				for host := uint16(8080); host < 8084; host++ {
					publish(&s, "web", via, proto, host, 80)
				}
			}
			mustSet(t, w, s)
			for _, n := range s.Networks[0].Subnets {
				if err := w.Route(n.Prefix); err != nil {
					t.Fatal(err)
				}
			}
			echo(t, in(w, "web"), ":80")
			for _, local := range []string{"198.51.100.1:4711", "[2001:db8:1::1]:4711"} {
				local := netip.MustParseAddrPort(local)
				hosts := []string{"198.51.100.2", "172.30.0.1"}
				if local.Addr().Is6() {
					hosts = []string{"2001:db8:1::2", "fd00:30::1"}
				}
				for _, proto := range protos {
					var talks []talk
					for _, host := range hosts {
						for port := 8080; port < 8084; port++ {
							talks = append(talks, dialFrom(t, w.DoClient, proto, local,
								net.JoinHostPort(host, fmt.Sprint(port))))
						}
					}
					for round := range 3 {
						for _, talk := range talks {
							talk.returns(fmt.Appendf(nil, "%d to %s", round, talk.conn.RemoteAddr()))
						}
					}
				}
			}
		})
	}
}

// TestRangesEndAtTheirEdges dials the ports of ranges, and those next to them.
func TestRangesEndAtTheirEdges(t *testing.T) {
	for _, via := range modes {
		t.Run(string(via), func(t *testing.T) {
			w := world(t)
			s := dual(t, w, model.DriverBridge, "web")
			for _, proto := range protos {
				s.Publishes = append(s.Publishes,
					model.Publish{Endpoint: "web", Via: via, Proto: proto,
						HostPorts: model.PortRange{First: 9001, Last: 9010},
						Ports:     model.PortRange{First: 9001, Last: 9010}},
					model.Publish{Endpoint: "web", Via: via, Proto: proto,
						HostPorts: model.PortRange{First: 9021, Last: 9030},
						Ports:     model.PortRange{First: 9041, Last: 9050}})
			}
			mustSet(t, w, s)
			// Servers also listen on the ports beyond the edges, to which a range
			// that is too wide would map.
			mappings := map[int]int{9000: 0, 9001: 9001, 9010: 9010, 9011: 0, 9020: 0, 9021: 9041, 9025: 9045,
				9030: 9050, 9031: 0}
			for _, port := range []int{9000, 9001, 9010, 9011, 9020, 9031, 9040, 9041, 9045, 9050, 9051} {
				serve(t, in(w, "web"), fmt.Sprint(port), fmt.Sprintf(":%d", port))
			}
			for host, port := range mappings {
				for _, proto := range protos {
					for _, addr := range server(host) {
						if port != 0 {
							hears(t, w.DoClient, proto, addr, fmt.Sprint(port))
						} else {
							isClosed(t, w.DoClient, proto, addr)
						}
					}
				}
			}
		})
	}
}

// isClosed fails the test unless a new connection or datagram is refused.
func isClosed(t testing.TB, from place.Place, proto model.Proto, to string) {
	t.Helper()
	conn, err := place.Dial(from, string(proto), to, place.Timeout)
	if err == nil {
		defer conn.Close()
		_, err = talk{t, conn}.ask()
	}
	if !isRefusal(err) {
		t.Errorf("%s %s: %v; want a refusal", proto, to, err)
	}
}

// TestDatagramsLargerThanTheMTU sends datagrams that must be fragmented, in both
// directions.
func TestDatagramsLargerThanTheMTU(t *testing.T) {
	for _, via := range modes {
		t.Run(string(via), func(t *testing.T) {
			w := world(t)
			s := dual(t, w, model.DriverBridge, "web")
			publish(&s, "web", via, model.UDP, 8080, 80)
			publish(&s, "web", via, model.UDP, 8081, 80)
			mustSet(t, w, s)
			echo(t, in(w, "web"), ":80")
			for i, to := range append(server(8080), server(8081)...) {
				local := netip.AddrPortFrom(netip.MustParseAddr([]string{"198.51.100.1", "2001:db8:1::1"}[i%2]), 4711)
				talk := dialFrom(t, w.DoClient, model.UDP, local, to)
				for _, size := range []int{1473, 8000, 60000} {
					talk.returns(randomBytes(size))
				}
			}
		})
	}
}

// randomBytes returns n pseudo-random bytes, the same in each run.
func randomBytes(n int) []byte {
	b := make([]byte, n)
	source := rand.NewChaCha8([32]byte{})
	_, _ = source.Read(b)
	return b
}
