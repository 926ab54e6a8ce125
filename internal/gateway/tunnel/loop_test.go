package tunnel_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead/internal/gateway/tunnel"
)

// TestMessagesShareLoops opens many tunnels: the loops have them, and lose them with their end.
func TestMessagesShareLoops(t *testing.T) {
	const tunnels = 100
	ends := make([]chan struct{}, tunnels)
	clients := make([]net.Conn, tunnels)
	for i := range tunnels {
		client, server, ended := joinedBy(t, func(a, b net.Conn) { tunnel.JoinMessages(t.Context(), a, b) })
		say(t, client, server, "there")
		say(t, server, client, "and back")
		clients[i], ends[i] = client, ended
		_ = server.CloseWrite()
	}
	if n := tunnel.Shared(); n != 2*tunnels {
		t.Errorf("the loops have %d connections of %d tunnels", n, tunnels)
	}
	for i := range tunnels {
		clients[i].Close()
		<-ends[i]
	}
	if n := tunnel.Shared(); n != 0 {
		t.Errorf("the loops have %d connections of tunnels that have ended", n)
	}
}

// TestMessagesInTurn sends messages of all sizes to and fro on one tunnel: none waits for the next.
func TestMessagesInTurn(t *testing.T) {
	client, server, _ := joinedBy(t, func(a, b net.Conn) { tunnel.JoinMessages(t.Context(), a, b) })
	for _, size := range []int{1, 32<<10 - 1, 32 << 10, 32<<10 + 1, 3, 4 << 20, 1, 100} {
		text := make([]byte, size)
		_, _ = rand.Read(text)
		for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
			go func() { _, _ = way[0].Write(text) }() // the other end fails by what it reads
			got := make([]byte, size)
			if _, err := io.ReadFull(way[1], got); err != nil || !bytes.Equal(got, text) {
				t.Fatalf("%d bytes: %v", size, err)
			}
		}
	}
}

// TestFullSocket sends short messages to a client that reads none, until the loop cannot pass one on, and then
// some more. Nothing is lost when the client reads.
func TestFullSocket(t *testing.T) {
	client, server, ended := joinedBy(t, func(a, b net.Conn) {
		_ = a.(*net.TCPConn).SetWriteBuffer(1)
		tunnel.JoinMessages(t.Context(), a, b)
	})
	say(t, client, server, "x")
	_ = client.CloseWrite()
	var text []byte
	write := func() {
		part := make([]byte, 1000)
		_, _ = rand.Read(part)
		text = append(text, part...)
		if _, err := server.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	for tunnel.Shared() > 0 {
		write()
		for tunnel.Shared() > 0 && received(t, client) < len(text) {
			runtime.Gosched()
		}
	}
	write()
	_ = server.CloseWrite()
	got, err := io.ReadAll(client)
	if err != nil || !bytes.Equal(got, text) {
		t.Errorf("the client read %d bytes, %v, want %d", len(got), err, len(text))
	}
	<-ended
}

// received returns how many bytes a socket has that were not read.
func received(t *testing.T, c *net.TCPConn) (n int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	failed := raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCINQ) })
	if failed != nil || err != nil {
		t.Fatal(failed, err)
	}
	return n
}

// TestContextEndsMessages ends the context of a tunnel in a loop, of one that has left it, and of one that has
// not begun.
func TestContextEndsMessages(t *testing.T) {
	for name, before := range map[string]func(client, server *net.TCPConn, end func()){
		"in a loop": func(client, server *net.TCPConn, _ func()) { say(t, client, server, "x") },
		"after bulk": func(client, server *net.TCPConn, _ func()) {
			go func() { _, _ = client.Write(make([]byte, 4<<20)) }() // the server fails by what it reads
			if _, err := io.ReadFull(server, make([]byte, 4<<20)); err != nil {
				t.Fatal(err)
			}
		},
		"at the start": func(_, _ *net.TCPConn, end func()) { end() },
	} {
		ctx, end := context.WithCancel(t.Context())
		client, a := pair(t)
		server, b := pair(t)
		ended := make(chan struct{})
		start := func() {
			defer close(ended)
			tunnel.JoinMessages(ctx, a, b)
		}
		if name != "at the start" {
			go start()
		}
		before(client, server, end)
		if name == "at the start" {
			go start()
		}
		end()
		<-ended
		for _, c := range []net.Conn{client, server} {
			if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
				t.Errorf("%s: an end reads %d bytes, %v", name, n, err)
			}
		}
	}
}
