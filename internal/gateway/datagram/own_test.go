package datagram

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

// loopback opens a socket on 127.0.0.1.
func loopback(t *testing.T) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestForgedDatagramDoesNotLoop forges datagrams between the ports of two entry points whose
// servers answer whatever they get. The servers receive none of them.
func TestForgedDatagramDoesNotLoop(t *testing.T) {
	var received atomic.Int32
	every, err := net.ListenUDP("udp", nil)
	if err != nil {
		t.Fatal(err)
	}
	conns := []*net.UDPConn{loopback(t), every}
	var ports []uint16
	var own Own
	for _, c := range conns {
		own = append(own, c.LocalAddr().(*net.UDPAddr).AddrPort())
		ports = append(ports, own[len(own)-1].Port())
	}
	for i, conn := range conns {
		server := loopback(t)
		go func() {
			for b := make([]byte, 100); ; {
				n, from, err := server.ReadFromUDPAddrPort(b)
				if err != nil {
					return
				}
				if received.Add(1) < 100 {
					_, _ = server.WriteToUDPAddrPort(b[:n], from)
				}
			}
		}()
		route := &Route{service: &balancer{servers: []*Server{newServer(server.LocalAddr().String())},
			turn: new(atomic.Uint64)}}
		e := NewEntry(conn, own, time.Hour, func() *Route { return route },
			prometheus.NewGauge(prometheus.GaugeOpts{Name: fmt.Sprint("sessions", i)}), func(int) {})
		e.Start(func(err error) { t.Error(err) })
		t.Cleanup(e.Close)
	}
	for _, from := range ports {
		for _, to := range ports {
			forge(t, from, to)
		}
	}
	for i, port := range ports {
		client := loopback(t)
		_ = client.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = client.WriteToUDPAddrPort([]byte("honest"), netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port))
		b := make([]byte, 100)
		if n, err := client.Read(b); err != nil || string(b[:n]) != "honest" {
			t.Fatalf("got %q, %v", b[:n], err)
		}
		if n := received.Load(); n != int32(i+1) {
			t.Errorf("the servers received %d datagrams, want the %d honest ones", n, i+1)
		}
	}
}

// forge sends a datagram to a port of 127.0.0.1, from another one that is in use.
func forge(t *testing.T, from, to uint16) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var b []byte
	for _, n := range []uint16{from, to, 8 + 6, 0} {
		b = binary.BigEndian.AppendUint16(b, n)
	}
	if err := unix.Sendto(fd, append(b, "forged"...), 0, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
}
