package datagram

import (
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// mistakes is a service that panics for each second client.
type mistakes struct {
	to *Server
	n  atomic.Int32
}

func (m *mistakes) next() *Server {
	if m.n.Add(1)%2 == 1 {
		panic("a mistake")
	}
	return m.to
}

// TestPanicsEndOneSession lets the begin and the end of sessions panic: the other clients are served.
func TestPanicsEndOneSession(t *testing.T) {
	socket := func() *net.UDPConn {
		c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		return c
	}
	server, conn := socket(), socket()
	_ = conn.SetDeadline(time.Time{})
	go func() {
		for b := make([]byte, 100); ; {
			n, from, err := server.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	route := &Route{service: &mistakes{to: newServer(server.LocalAddr().String())}}
	expired := make(chan struct{}, 10)
	e := NewEntry(conn, nil, time.Hour, func() *Route { return route },
		prometheus.NewGauge(prometheus.GaugeOpts{Name: "sessions"}), func(n int) {
			if n < 0 {
				expired <- struct{}{}
				panic("a mistake at the end of a session")
			}
		})
	e.Start(func(err error) { t.Error(err) })
	ask := func() {
		t.Helper()
		bad, good := socket(), socket()
		_, _ = bad.WriteToUDPAddrPort([]byte("bad"), conn.LocalAddr().(*net.UDPAddr).AddrPort())
		for _, text := range []string{"one", "two"} {
			_, _ = good.WriteToUDPAddrPort([]byte(text), conn.LocalAddr().(*net.UDPAddr).AddrPort())
			b := make([]byte, 100)
			if n, err := good.Read(b); err != nil || string(b[:n]) != text {
				t.Fatalf("got %q, %v, want %s", b[:n], err, text)
			}
		}
	}
	ask()
	e.expireAt(time.Now().Add(2 * time.Hour))
	<-expired
	ask()
	e.changed = func(int) {}
	e.Close()
}
