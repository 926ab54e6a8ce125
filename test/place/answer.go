package place

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// Request is a line or a datagram that a server has received.
type Request struct {
	// Text is the request without the end of the line.
	Text string
	// Client is the client's address as the server sees it.
	Client netip.AddrPort
}

// Server answers requests at one address, over TCP and UDP.
type Server struct {
	tcp net.Listener
	udp net.PacketConn
}

// Open starts a server in the place. It answers each line over TCP and each datagram over UDP with
// the line that reply returns.
func Open(in Place, addr string, reply func(Request) string) (*Server, error) {
	tcp, err := Listen(in, addr)
	if err != nil {
		return nil, err
	}
	udp, err := ListenPacket(in, addr)
	if err != nil {
		tcp.Close()
		return nil, err
	}
	go Accept(tcp, Lines(reply))
	go ReplyTo(udp, func(datagram []byte, client net.Addr) []byte {
		return answer(string(datagram), client, reply)
	})
	return &Server{tcp, udp}, nil
}

// Close closes the sockets. Open connections stay.
func (s *Server) Close() {
	s.tcp.Close()
	s.udp.Close()
}

// Answer opens a server that ends with the test.
func Answer(t testing.TB, in Place, addr string, reply func(Request) string) {
	t.Helper()
	s, err := Open(in, addr, reply)
	if err != nil {
		t.Fatalf("serve %s: %v", addr, err)
	}
	t.Cleanup(s.Close)
}

// Lines returns a conversation that answers each line with the line that reply returns.
func Lines(reply func(Request) string) func(net.Conn) {
	return func(conn net.Conn) {
		for lines := bufio.NewReader(conn); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if _, err := conn.Write(answer(line, conn.RemoteAddr(), reply)); err != nil {
				return
			}
		}
	}
}

func answer(text string, client net.Addr, reply func(Request) string) []byte {
	return fmt.Appendln(nil, reply(Request{strings.TrimSuffix(text, "\n"), addrPort(client)}))
}

// addrPort returns a socket's address. IPv4 addresses of IPv6 sockets become IPv4 addresses.
func addrPort(a net.Addr) netip.AddrPort {
	at := netip.MustParseAddrPort(a.String())
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}
