package proxy

import (
	"encoding/binary"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// countUDP answers each datagram with the same bytes, for the first 100. It counts them.
func countUDP(t *testing.T, count *atomic.Int64) netip.AddrPort {
	return serveUDP(t, "127.0.0.1:0", func(_ netip.AddrPort, b []byte) []byte {
		if count.Add(1) > 100 {
			return nil
		}
		return b
	})
}

// TestForgedDatagramDoesNotLoop forges one datagram from each published and each
// reserved port to each published port. No target gets any of them.
func TestForgedDatagramDoesNotLoop(t *testing.T) {
	var count atomic.Int64
	p := newProxy(t, Role)
	set(t, p, Config{Listeners: []plan.Listener{
		published(model.UDP, both, 8053, countUDP(t, &count)),
		published(model.UDP, "0.0.0.0", 8054, countUDP(t, &count)),
		published(model.UDP, "::", 8055, countUDP(t, &count)),
		published(model.UDP, "10.77.0.1", 8056, countUDP(t, &count)),
	}, Reservations: []plan.Reservation{reserved(model.UDP, "0.0.0.0", 8057), reserved(model.UDP, "fd00:77::1", 8058)}})
	for _, c := range []struct {
		host     string
		from, to []uint16
	}{
		{"10.77.0.1", []uint16{8053, 8054, 8056, 8057}, []uint16{8053, 8054, 8056}},
		{"127.0.0.1", []uint16{8053, 8054, 8057}, []uint16{8053, 8054}},
		{"fd00:77::1", []uint16{8053, 8055, 8058}, []uint16{8053, 8055}},
		{"::1", []uint16{8053, 8055}, []uint16{8053, 8055}},
	} {
		host := netip.MustParseAddr(c.host)
		for _, from := range c.from {
			for _, to := range c.to {
				forgeUDP(t, netip.AddrPortFrom(host, from), netip.AddrPortFrom(host, to), "forged")
			}
		}
		// The answer proves that the proxy has received all earlier datagrams.
		for _, to := range c.to {
			before := count.Load()
			ask(t, dialUDP(t, netip.AddrPortFrom(host, to).String()), "honest", "honest")
			if n := count.Load() - before; n != 1 {
				t.Errorf("after forged datagrams to port %d of %s the targets got %d datagrams, want one", to, host, n)
			}
		}
	}
}

// TestClientMayUseThePortOfAPublish: a client whose address is not the host's, or that
// is bound to another of the host's addresses, may have the number of a published port.
func TestClientMayUseThePortOfAPublish(t *testing.T) {
	p := newProxy(t, Role)
	echoes := serveUDP(t, "127.0.0.1:0", echoUDP)
	set(t, p, Config{Listeners: []plan.Listener{published(model.UDP, "10.77.0.1", 8053, echoes),
		published(model.UDP, "0.0.0.0", 8054, echoes)}})
	c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8053},
		&net.UDPAddr{IP: net.IPv4(10, 77, 0, 1), Port: 8053})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask(t, c, "bound elsewhere", "bound elsewhere")
	before := stats(t, p).DatagramsIn
	forgeUDP(t, netip.MustParseAddrPort("192.0.2.1:8054"), netip.MustParseAddrPort("10.77.0.1:8054"), "another host's")
	until(t, p, "the datagram of another host's port", func(s model.ProxyStats) bool { return s.DatagramsIn > before })
}

// forgeUDP sends a datagram with any source address and port.
func forgeUDP(t *testing.T, from, to netip.AddrPort, text string) {
	t.Helper()
	family, v6 := unix.AF_INET, to.Addr().Is6()
	var src, dst unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte(from.Addr().AsSlice())},
		&unix.SockaddrInet4{Addr: [4]byte(to.Addr().AsSlice())}
	if v6 {
		family = unix.AF_INET6
		src, dst = &unix.SockaddrInet6{Addr: from.Addr().As16()}, &unix.SockaddrInet6{Addr: to.Addr().As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if v6 {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_CHECKSUM, 6)
	} else {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1)
	}
	var b []byte
	for _, n := range []uint16{from.Port(), to.Port(), uint16(8 + len(text)), 0} {
		b = binary.BigEndian.AppendUint16(b, n)
	}
	if err == nil {
		err = unix.Bind(fd, src)
	}
	if err == nil {
		err = unix.Sendto(fd, append(b, text...), 0, dst)
	}
	if err != nil {
		t.Fatalf("forge a datagram from %s: %v", from, err)
	}
}
