package place

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"
)

// Listen opens a TCP listener in the place. It waits for up to ten seconds while the port is in use: a
// program that another test starts has a copy of a closed listener between fork and exec.
func Listen(in Place, addr string) (l net.Listener, err error) {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err = in(func() (err error) {
			l, err = net.Listen("tcp"+family(addr), addr)
			return err
		})
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return l, err
		}
	}
}

// ListenPacket opens a UDP socket in the place.
func ListenPacket(in Place, addr string) (c net.PacketConn, err error) {
	err = in(func() (err error) {
		c, err = net.ListenPacket("udp"+family(addr), addr)
		return err
	})
	return c, err
}

// family returns "4" for an IPv4 address. Package net would open 0.0.0.0 for both families.
func family(addr string) string {
	if a, err := netip.ParseAddrPort(addr); err == nil && a.Addr().Is4() {
		return "4"
	}
	return ""
}

// Accept holds a conversation with each client, until the listener is closed. It closes the
// connection after the conversation.
func Accept(l net.Listener, converse func(net.Conn)) {
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
}

// ReplyTo answers each datagram, until the socket is closed.
func ReplyTo(c net.PacketConn, reply func(datagram []byte, client net.Addr) []byte) {
	buf := make([]byte, 1<<16)
	for {
		n, client, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		_, _ = c.WriteTo(reply(buf[:n], client), client) // the client may be gone
	}
}

// Serve holds a conversation with each TCP client of an address in the place, until stop is called
// or the test ends.
func Serve(t testing.TB, in Place, addr string, converse func(net.Conn)) (stop func()) {
	t.Helper()
	l, err := Listen(in, addr)
	if err != nil {
		t.Fatalf("serve %s: %v", addr, err)
	}
	stop = func() { l.Close() }
	t.Cleanup(stop)
	go Accept(l, converse)
	return stop
}

// Pair returns both ends of a TCP connection over loopback, until the test ends.
func Pair(t testing.TB) (dialled, accepted *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// ServeUDP answers each datagram to an address in the place, until the test ends.
func ServeUDP(t testing.TB, in Place, addr string, reply func(datagram []byte, client net.Addr) []byte) {
	t.Helper()
	c, err := ListenPacket(in, addr)
	if err != nil {
		t.Fatalf("serve %s: %v", addr, err)
	}
	t.Cleanup(func() { c.Close() })
	go ReplyTo(c, reply)
}

// Echo is a conversation that returns everything to the client.
func Echo(conn net.Conn) { _, _ = io.Copy(conn, conn) }

// EchoDatagram replies with the datagram itself.
func EchoDatagram(datagram []byte, _ net.Addr) []byte { return datagram }

// Hangup is a conversation that ends at once.
func Hangup(net.Conn) {}
