package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

// TestClosedPortRefusesClients checks that the endpoint's ICMP error or reset
// reaches the client, also a client whose source port was translated.
func TestClosedPortRefusesClients(t *testing.T) {
	for _, via := range direct {
		t.Run(string(via), func(t *testing.T) {
			w := world(t)
			s := dual(t, w, model.DriverBridge, "web", "app")
			for _, proto := range protos {
				publish(&s, "web", via, proto, 8080, 80)
				publish(&s, "web", via, proto, 8081, 80)
			}
			mustSet(t, w, s)
			for _, from := range []place.Place{w.DoClient, in(w, "app"), in(w, "web")} {
				for _, proto := range protos {
					for _, addr := range server(8080) {
						isClosed(t, from, proto, addr)
					}
				}
			}
			for i, addr := range append(server(8080), server(8081)...) {
				local := netip.AddrPortFrom(netip.MustParseAddr([]string{"198.51.100.1", "2001:db8:1::1"}[i%2]), 4711)
				dialFrom(t, w.DoClient, model.UDP, local, addr).isRefused()
			}
		})
	}
}

// far are the addresses of a host behind the client host, which routes for it.
var far = []string{"203.0.113.2", "2001:db8:2::2"}

// narrow is the largest packet, in bytes, that the router forwards in either
// direction.
const narrow = 1280

// behindARouter makes that host. It assumes an MTU of 1500 bytes on every link.
func behindARouter(t *testing.T, w *topology.World) place.Place {
	t.Helper()
	path := strings.Replace(mustSandbox(t, w, "far"), "self", fmt.Sprint(os.Getpid()), 1)
	sh(t, w.DoClient, "set -e; sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"+
		" net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0;"+
		" ip link add far0 type veth peer name far0 netns "+path+"; ip link set far0 up;"+
		" ip addr add 203.0.113.1/24 dev far0; ip addr add 2001:db8:2::1/64 dev far0 nodad")
	sh(t, in(w, "far"), "set -e; ip link set far0 up;"+
		" ip addr add 203.0.113.2/24 dev far0; ip addr add 2001:db8:2::2/64 dev far0 nodad;"+
		" ip route add default via 203.0.113.1; ip -6 route add default via 2001:db8:2::1")
	sh(t, w.DoClient,
		fmt.Sprintf("set -e; for to in '203.0.113.2 dev far0' '2001:db8:2::2 dev far0' '%s dev wire0' '%s dev wire0';"+
			" do ip route add $to mtu lock %d; done", topology.ServerAddr4, topology.ServerAddr6, narrow))
	onServer(t, w,
		"set -e; ip route add 203.0.113.0/24 via 198.51.100.1; ip -6 route add 2001:db8:2::/64 via 2001:db8:1::1")
	return in(w, "far")
}

// TestTransfersCrossANarrowPath transfers data over a path with a small MTU. The
// router's ICMP errors must reach the endpoint, with the endpoint's addresses.
func TestTransfersCrossANarrowPath(t *testing.T) {
	for _, via := range modes {
		t.Run(string(via), func(t *testing.T) {
			w := world(t)
			from := behindARouter(t, w)
			s := dual(t, w, model.DriverBridge, "web")
			publish(&s, "web", via, model.TCP, 8080, 80)
			publish(&s, "web", via, model.TCP, 8081, 80)
			mustSet(t, w, s)
			echo(t, in(w, "web"), ":80")
			for i, to := range append(server(8080), server(8081)...) {
				local := netip.AddrPortFrom(netip.MustParseAddr(far[i%2]), 4711)
				dialFrom(t, from, model.TCP, local, to).exchanges(randomBytes(4 << 20))
				forgetPaths(t, in(w, "web"))
			}
		})
	}
}

// forgetPaths deletes the path MTUs that the place has learned.
func forgetPaths(t *testing.T, in place.Place) {
	t.Helper()
	sh(t, in, "ip route flush cache; ip -6 route flush cache")
}

// exchanges sends and receives simultaneously, and fails the test unless the peer
// returns the bytes unchanged.
func (t talk) exchanges(sent []byte) {
	t.t.Helper()
	writing := make(chan error, 1)
	if err := t.conn.SetDeadline(time.Now().Add(place.Timeout)); err != nil {
		t.t.Fatal(err)
	}
	go func() {
		_, err := t.conn.Write(sent)
		writing <- err
	}()
	got := make([]byte, len(sent))
	n, err := io.ReadFull(t.conn, got)
	if err = errors.Join(err, <-writing); err != nil || !bytes.Equal(got, sent) {
		t.t.Errorf("%s: of %d bytes %d came back, %v", t.conn.RemoteAddr(), len(sent), n, err)
	}
}

// TestRouterErrorsReachTheEndpoint makes the endpoint send packets that the
// router cannot forward: too large, or with too small a TTL. The router's ICMP
// error must reach the endpoint, also where the client's port was translated.
func TestRouterErrorsReachTheEndpoint(t *testing.T) {
	for _, via := range direct {
		t.Run(string(via), func(t *testing.T) {
			w := world(t)
			from := behindARouter(t, w)
			s := dual(t, w, model.DriverBridge, "web")
			publish(&s, "web", via, model.UDP, 8080, 80)
			publish(&s, "web", via, model.UDP, 8081, 80)
			mustSet(t, w, s)
			endpoint := openErrorSocket(t, in(w, "web"), ":80")
			for i, to := range append(server(8080), server(8081)...) {
				client := dialFrom(t, from, model.UDP, netip.AddrPortFrom(netip.MustParseAddr(far[i%2]), 4711), to)
				if _, err := client.conn.Write([]byte("hello\n")); err != nil {
					t.Fatal(err)
				}
				_, seen, err := endpoint.ReadFromUDPAddrPort(make([]byte, 16))
				if err != nil {
					t.Fatal(err)
				}
				hops(t, endpoint, 1)
				isReported(t, endpoint, seen, 16, unix.EHOSTUNREACH)
				hops(t, endpoint, 64)
				isReported(t, endpoint, seen, 1400, unix.EMSGSIZE)
				if _, err := endpoint.WriteToUDPAddrPort(make([]byte, 1400), seen); !errors.Is(err, unix.EMSGSIZE) {
					t.Errorf("%s: the endpoint's kernel has not learned the path MTU: %v", to, err)
				}
				forgetPaths(t, in(w, "web"))
			}
		})
	}
}

// isReported sends one datagram and waits until the socket reports the error.
func isReported(t *testing.T, c *net.UDPConn, to netip.AddrPort, size int, want error) {
	t.Helper()
	if _, err := c.WriteToUDPAddrPort(make([]byte, size), to); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.ReadFromUDPAddrPort(make([]byte, 16)); !errors.Is(err, want) {
		t.Errorf("%d bytes to %s: %v; want %v", size, to, err, want)
	}
}

// hops sets the TTL and the hop limit of the socket's packets.
func hops(t *testing.T, c *net.UDPConn, n int) {
	t.Helper()
	option(t, c, unix.IPPROTO_IP, unix.IP_TTL, n)
	option(t, c, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, n)
}

// openErrorSocket opens a UDP socket that receives ICMP errors (IP_RECVERR) and never
// fragments.
func openErrorSocket(t *testing.T, in place.Place, at string) *net.UDPConn {
	t.Helper()
	conn, err := place.ListenPacket(in, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := conn.(*net.UDPConn)
	option(t, c, unix.IPPROTO_IP, unix.IP_RECVERR, 1)
	option(t, c, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
	option(t, c, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
	option(t, c, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
	if err := c.SetDeadline(time.Now().Add(place.Timeout)); err != nil {
		t.Fatal(err)
	}
	return c
}

func option(t *testing.T, c *net.UDPConn, level, name, value int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err == nil {
		err = errors.Join(raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, name, value) }), err)
	}
	if err != nil {
		t.Fatal(err)
	}
}
