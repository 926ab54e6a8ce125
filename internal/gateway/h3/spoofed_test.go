package h3

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// TestSpoofedHandshakes sends first packets of clients that do not answer, as spoofed packets do: from a number
// of open handshakes on, the server keeps nothing of them, and answers with Retry (RFC 9000 8.1.2).
func TestSpoofedHandshakes(t *testing.T) {
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	defer certified.Close()
	for range 10 {
		if spoof(t, certified.TLS.Certificates) {
			return
		}
	}
	t.Error("the first handshakes end before the last begin")
}

// spoof sends first packets to a new server, and checks the answers. It returns false if a handshake may have ended
// in the meantime.
func spoof(t *testing.T, certificates []tls.Certificate) (inTime bool) {
	t.Helper()
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	const few = 10
	s, err := listen(Config{Socket: socket, MaxStreams: 10,
		TLS: &tls.Config{Certificates: certificates}, Handler: http.NotFoundHandler(),
		Enter: func(*quic.Conn) (heard, leave func()) { return func() {}, func() {} }}, few)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const lasts = 5 * time.Second // what quic-go lets a silent client have by default
	began := time.Now()
	for n := range 3 * few {
		got := firstAnswer(t, socket.LocalAddr())
		if time.Since(began) >= lasts {
			return false
		}
		if isRetry(got) != (n >= few) {
			t.Fatalf("after %d handshakes, the first byte is %#x", n, got)
		}
	}
	open := s.open.Load()
	if time.Since(began) >= lasts {
		return false
	}
	if open != few {
		t.Errorf("%d connections are open, want %d", open, few)
	}
	return true
}

// isRetry reports whether a packet with the first byte is a Retry (RFC 9000 17.2.5).
func isRetry(first byte) bool { return first&0xf0 == 0xf0 }

// firstAnswer sends the first packet of a client, and nothing else, and returns the first byte of the answer.
func firstAnswer(t *testing.T, to net.Addr) byte {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	silent := &silentConn{PacketConn: conn, answered: make(chan byte, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = quic.Dial(ctx, silent, to, &tls.Config{InsecureSkipVerify: true,
			NextProtos: []string{http3.NextProtoH3}}, &quic.Config{})
	}()
	first := <-silent.answered
	cancel()
	<-ended
	return first
}

// silentConn sends one packet, and keeps what it receives.
type silentConn struct {
	net.PacketConn
	once     sync.Once
	answered chan byte
}

// WriteTo implements net.PacketConn.
func (c *silentConn) WriteTo(b []byte, to net.Addr) (n int, err error) {
	n = len(b)
	c.once.Do(func() { n, err = c.PacketConn.WriteTo(b, to) })
	return n, err
}

// ReadFrom implements net.PacketConn. It returns only errors.
func (c *silentConn) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, err := c.PacketConn.ReadFrom(b)
		if err != nil {
			return n, from, err
		}
		select {
		case c.answered <- b[0]:
		default:
		}
	}
}
