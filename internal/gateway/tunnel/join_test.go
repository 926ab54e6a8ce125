package tunnel_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/gateway/tunnel"
	"fairlead/test/place"
)

// never is a termination delay that no test waits for.
const never = time.Hour

// pair returns both ends of a TCP connection with deadlines against hanging.
func pair(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	near, far = place.Pair(t)
	_ = near.SetDeadline(time.Now().Add(place.Timeout))
	return near, far
}

// joined returns the outer ends of two joined connections, and a channel that is closed when
// they have ended.
func joined(t *testing.T, delay time.Duration) (client, server *net.TCPConn, ended chan struct{}) {
	return joinedBy(t, func(a, b net.Conn) { tunnel.Join(a, b, delay) })
}

// joinedBy is joined with a function.
func joinedBy(t *testing.T, join func(a, b net.Conn)) (client, server *net.TCPConn, ended chan struct{}) {
	client, a := pair(t)
	server, b := pair(t)
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		join(a, b)
	}()
	t.Cleanup(func() { client.Close(); server.Close(); <-ended })
	return client, server, ended
}

// joiners are the ways to join connections.
func joiners(t *testing.T) map[string]func(a, b net.Conn) {
	return map[string]func(a, b net.Conn){
		"bytes":    func(a, b net.Conn) { tunnel.Join(a, b, never) },
		"messages": func(a, b net.Conn) { tunnel.JoinMessages(t.Context(), a, b) },
	}
}

// TestJoin sends more than pipes and buffers hold, in both directions at once and with an end.
func TestJoin(t *testing.T) {
	for name, join := range joiners(t) {
		for _, size := range []int{0, 1, 32 << 10, 40 << 10, 9 << 20} {
			client, server, ended := joinedBy(t, join)
			text := make([]byte, size)
			_, _ = rand.Read(text)
			for _, c := range []*net.TCPConn{client, server} {
				go func() {
					_, _ = c.Write(text) // the other end fails by what it reads
					_ = c.CloseWrite()
				}()
			}
			for _, c := range []*net.TCPConn{server, client} {
				if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, text) {
					t.Errorf("%s: %d bytes: got %d, %v", name, size, len(got), err)
				}
			}
			<-ended
		}
	}
}

// TestHalfClose checks that the end of one direction leaves the other as long as bytes come,
// and that a message in between does not wait for more.
func TestHalfClose(t *testing.T) {
	for name, join := range joiners(t) {
		client, server, _ := joinedBy(t, join)
		_ = client.CloseWrite()
		if b, err := io.ReadAll(server); err != nil || len(b) > 0 {
			t.Fatalf("%s: the server read %q, %v", name, b, err)
		}
		for range 3 {
			say(t, server, client, "late")
		}
	}
}

// say sends a text from one end to the other.
func say(t *testing.T, from, to net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(from, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(to, got); err != nil || string(got) != text {
		t.Fatalf("%q, %v, want %q", got, err, text)
	}
}

// TestTerminationDelay checks that a silent direction ends after the other, and that one with
// bytes does not.
func TestTerminationDelay(t *testing.T) {
	client, server, ended := joined(t, time.Millisecond)
	_ = client.CloseWrite()
	<-ended
	if _, err := io.ReadAll(server); err != nil {
		t.Errorf("the server's connection failed: %v", err)
	}

	client, server, ended = joined(t, 10*time.Second)
	text := make([]byte, 64<<20)
	go func() {
		_, _ = server.Write(text) // the client fails by what it reads
		_ = server.CloseWrite()
	}()
	_ = client.CloseWrite()
	if n, err := io.Copy(io.Discard, client); err != nil || n != int64(len(text)) {
		t.Errorf("the client read %d bytes, %v", n, err)
	}
	<-ended
}

// TestFailures checks that a connection that fails is not taken for one that has ended.
func TestFailures(t *testing.T) {
	for name, join := range joiners(t) {
		client, server, ended := joinedBy(t, join)
		say(t, client, server, "x")
		_ = server.SetLinger(0)
		server.Close()
		<-ended
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: the client sees %v, want a reset", name, err)
		}
	}
}
