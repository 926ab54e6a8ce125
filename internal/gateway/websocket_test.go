package gateway_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	model "fairlead/internal/model/gateway"
)

// The opcodes of frames (RFC 6455, 5.2), and the bit of a message's last frame.
const (
	wsMore, wsText, wsBinary, wsClose, wsPing, wsPong = 0, 1, 2, 8, 9, 10

	wsFin = 0x80
)

// frame returns a frame. A client's is masked (RFC 6455, 5.3).
func frame(client bool, first byte, payload []byte) []byte {
	b := []byte{first}
	mask := byte(0)
	if client {
		mask = 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b = append(b, mask|byte(n))
	case n <= 0xffff:
		b = binary.BigEndian.AppendUint16(append(b, mask|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, mask|127), uint64(n))
	}
	if !client {
		return append(b, payload...)
	}
	key := [4]byte{0xde, 0xad, 0, 0xef}
	b = append(b, key[:]...)
	for i, c := range payload {
		b = append(b, c^key[i%4])
	}
	return b
}

// closing returns the payload of a close frame.
func closing(code uint16, reason string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, code), reason...)
}

// conversations are what one side sends: frames at the borders of their lengths, messages in
// fragments with control frames between them, compressed and invalid frames. The gateway
// must change nothing.
func conversations(client bool) map[string][]byte {
	f := func(first byte, payload []byte) []byte { return frame(client, first, payload) }
	all := map[string][]byte{
		"fragments": bytes.Join([][]byte{f(wsText, []byte("one, ")), f(wsFin|wsPing, []byte("in between")),
			f(wsMore, nil), f(wsFin|wsPong, nil), f(wsFin|wsMore, []byte("two"))}, nil),
		"single bytes of UTF-8": bytes.Join([][]byte{f(wsText, []byte{0xe2}), f(wsMore, []byte{0x82}),
			f(wsFin|wsMore, []byte{0xac})}, nil),
		"compressed":     f(wsFin|0x40|wsText, []byte{0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00}),
		"reserved bits":  f(wsFin|0x30|wsBinary, []byte("x")),
		"unknown opcode": f(wsFin|0x0b, nil),
		"invalid UTF-8":  f(wsFin|wsText, []byte{0xce, 0xba, 0xed, 0xa0, 0x80}),
		"half of a head": f(wsFin|wsText, make([]byte, 126))[:3],
		"not a frame":    []byte("GET / HTTP/1.1\r\nHost: other.test\r\n\r\n"),
	}
	for _, n := range []int{0, 1, 125, 126, 65535, 65536, 1 << 20} {
		all[fmt.Sprintf("%d bytes", n)] = f(wsFin|wsBinary, bytes.Repeat([]byte{0, 0xff, 0x0a}, n/3+1)[:n])
	}
	for _, code := range []uint16{1000, 1001, 1002, 1009, 3000, 4999} {
		all[fmt.Sprintf("close %d", code)] = f(wsFin|wsClose, closing(code, "a reason"))
	}
	all["close without a code"] = f(wsFin|wsClose, nil)
	return all
}

// TestWebSocketBytes sends frames to the other side and ends the connection: it must get the same
// bytes, without and with TLS on both sides, and its answer must come after that.
func TestWebSocketBytes(t *testing.T) {
	onWebSockets(t, func(t *testing.T, open func() (client, server net.Conn)) {
		for name, sent := range conversations(true) {
			client, server := open()
			whole(t, name+" of the client", client, server, sent, frame(false, wsFin|wsClose, closing(1000, "")))
		}
		for name, sent := range conversations(false) {
			client, server := open()
			whole(t, name+" of the server", server, client, sent, frame(true, wsFin|wsClose, closing(1000, "")))
		}
	})
}

// whole sends bytes and ends that direction; the other side then answers and ends the other.
func whole(t *testing.T, name string, from, to net.Conn, sent, answer []byte) {
	t.Helper()
	failed := make(chan error, 1)
	go func() {
		_, err := from.Write(sent)
		failed <- errors.Join(err, from.(interface{ CloseWrite() error }).CloseWrite())
	}()
	if got, err := io.ReadAll(to); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%s: got %d bytes, %v, want %d", name, len(got), err, len(sent))
	}
	if err := <-failed; err != nil {
		t.Errorf("%s: send: %v", name, err)
	}
	if _, err := to.Write(answer); err != nil {
		t.Errorf("%s: answer: %v", name, err)
	}
	_ = to.Close()
	if got, err := io.ReadAll(from); err != nil || !bytes.Equal(got, answer) {
		t.Errorf("%s: got the answer %x, %v, want %x", name, got, err, answer)
	}
	_ = from.Close()
}

// TestWebSocketTurns sends messages to and fro on one connection: none must wait for the next.
func TestWebSocketTurns(t *testing.T) {
	onWebSockets(t, func(t *testing.T, open func() (client, server net.Conn)) {
		client, server := open()
		for i, n := range []int{1, 125, 70000, 2, 0, 1 << 18, 3} {
			payload := bytes.Repeat([]byte{byte(i)}, n)
			for _, way := range []struct {
				from, to net.Conn
				sent     []byte
			}{{client, server, frame(true, wsFin|wsBinary, payload)},
				{server, client, frame(false, wsFin|wsBinary, payload)}} {
				failed := make(chan error, 1)
				go func() {
					_, err := way.from.Write(way.sent)
					failed <- err
				}()
				got := make([]byte, len(way.sent))
				if _, err := io.ReadFull(way.to, got); err != nil || !bytes.Equal(got, way.sent) {
					t.Fatalf("message %d: %v", i, err)
				}
				if err := <-failed; err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// TestWebSocketFailures resets one side: the other must see a failure, not an end.
func TestWebSocketFailures(t *testing.T) {
	onWebSockets(t, func(t *testing.T, open func() (client, server net.Conn)) {
		for _, of := range []string{"client", "server"} {
			gone, left := open()
			if of == "server" {
				gone, left = left, gone
			}
			raw := gone
			if secure, ok := gone.(*tls.Conn); ok {
				raw = secure.NetConn()
			}
			_ = raw.(*net.TCPConn).SetLinger(0)
			_ = raw.Close()
			if n, err := left.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("a reset by the %s: the other side reads %d bytes, %v", of, n, err)
			}
		}
	})
}

// TestIdleWebSocketsHaveNoPipes opens connections and moves a message on each. When they are
// idle, each has two sockets in the gateway, and no pipe: descriptors are what limits the
// connections of an entry point.
func TestIdleWebSocketsHaveNoPipes(t *testing.T) {
	onWebSockets(t, func(t *testing.T, open func() (client, server net.Conn)) {
		const connections = 20
		before := pipes(t)
		message := frame(true, wsFin|wsText, []byte("a message"))
		for range connections {
			client, server := open()
			for _, to := range [][2]net.Conn{{client, server}, {server, client}} {
				if _, err := to[0].Write(message); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(to[1], make([]byte, len(message))); err != nil {
					t.Fatal(err)
				}
			}
		}
		eventually(t, "idle connections", func() error { // a pipe is returned after its bytes have arrived
			if n := pipes(t) - before; n >= connections {
				return fmt.Errorf("%d have %d ends of pipes", connections, n)
			}
			return nil
		})
	})
}

// pipes returns the number of ends of pipes that the process has.
func pipes(t *testing.T) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range all {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(to, "pipe:") {
			n++
		}
	}
	return n
}

// onWebSockets runs a test with clients and servers without and with TLS. Open opens a connection
// through the gateway and returns both ends.
func onWebSockets(t *testing.T, test func(t *testing.T, open func() (client, server net.Conn))) {
	for _, clientTLS := range []bool{false, true} {
		for _, serverTLS := range []bool{false, true} {
			t.Run(fmt.Sprintf("TLS %v to %v", clientTLS, serverTLS), func(t *testing.T) {
				w, accepted := newWebSockets(t, serverTLS)
				test(t, func() (net.Conn, net.Conn) { return w.webSocket(clientTLS), <-accepted })
			})
		}
	}
}

// newWebSockets starts a gateway with a server, which sends its ends of the connections.
func newWebSockets(t *testing.T, secure bool) (*world, chan net.Conn) {
	accepted := make(chan net.Conn, 1)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+
			r.Header.Get("Upgrade")+"\r\n\r\n")
		t.Cleanup(func() { c.Close() })
		accepted <- c
	}))
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	w := newWorld(t, model.Static{})
	service := serviceOf(s.URL)
	service.LoadBalancer.ServersTransport = "t@file"
	w.gateway.Apply(&model.Config{HTTP: model.HTTP{
		Routers: map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"},
			"tls@file": {Rule: "Host(`a.test`)", Service: "s@file", TLS: &model.RouterTLS{}}},
		Services:          map[string]*model.Service{"s@file": service},
		ServersTransports: map[string]*model.ServersTransport{"t@file": {InsecureSkipVerify: true}}}}, nil)
	return w, accepted
}

// webSocket opens a connection with the example of RFC 6455, 1.3.
func (w *world) webSocket(secure bool) net.Conn {
	w.t.Helper()
	c, err := net.Dial("tcp", w.address)
	if err != nil {
		w.t.Fatal(err)
	}
	if secure {
		c = tls.Client(c, &tls.Config{ServerName: "a.test", InsecureSkipVerify: true})
	}
	w.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, err = io.WriteString(c, "GET /chat HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	if err != nil {
		w.t.Fatal(err)
	}
	in := bufio.NewReaderSize(oneByOne{c}, 16)
	answer, err := http.ReadResponse(in, nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		w.t.Fatalf("%v, %v, want a change of protocols", answer, err)
	}
	return c
}

// oneByOne reads single bytes, so that a buffered reader reads no more than the head.
type oneByOne struct{ io.Reader }

func (o oneByOne) Read(p []byte) (int, error) { return o.Reader.Read(p[:min(1, len(p))]) }
