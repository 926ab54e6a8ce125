package stream_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/internal/gateway/stream"
	"fairlead/test/place"
)

// server starts a TCP server that sends its name and what it receives.
func server(t *testing.T, name string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go place.Accept(l, func(c net.Conn) {
		_, _ = io.WriteString(c, name+":")
		place.Echo(c)
	})
	return l.Addr().String()
}

// closed returns an address at which nothing listens as long as the test runs.
func closed(t *testing.T) string {
	t.Helper()
	c, _ := place.Pair(t) // an established connection keeps its port
	return c.LocalAddr().String()
}

func balancer(t *testing.T, addresses ...string) *stream.Balancer {
	t.Helper()
	b := &stream.Balancer{Service: "s", Log: slog.New(slog.DiscardHandler), Turns: new(atomic.Uint64),
		Transport: &stream.Transport{DialTimeout: 10 * time.Second, TerminationDelay: time.Hour}}
	for _, a := range addresses {
		s, err := stream.ParseServer(a, false)
		if err != nil {
			t.Fatal(err)
		}
		b.Servers = append(b.Servers, s)
	}
	return b
}

// ask serves a connection and returns all that its client gets.
func ask(t *testing.T, h stream.Handler) string {
	t.Helper()
	client, inner := place.Pair(t)
	go h.Serve(context.Background(), &stream.Client{Conn: inner, Address: netip.MustParseAddr("192.0.2.1")})
	_ = client.CloseWrite()
	b, err := io.ReadAll(client)
	if err != nil {
		return "error"
	}
	return string(b)
}

func TestBalance(t *testing.T) {
	b := balancer(t, server(t, "a"), server(t, "b"))
	counts := map[string]int{}
	for range 10 {
		counts[ask(t, b)]++
	}
	if counts["a:"] != 5 || counts["b:"] != 5 {
		t.Errorf("shares %v, want 5 each", counts)
	}
}

// TestAnotherServer checks that a server that cannot be reached costs no connection.
func TestAnotherServer(t *testing.T) {
	b := balancer(t, closed(t), closed(t), server(t, "a"))
	for range 10 {
		if got := ask(t, b); got != "a:" {
			t.Fatalf("got %q", got)
		}
	}
	if got := ask(t, balancer(t, closed(t))); got != "error" {
		t.Errorf("without a server: %q, want a reset", got)
	}
	if got := ask(t, balancer(t)); got != "error" {
		t.Errorf("with no server: %q, want a reset", got)
	}
}

func TestWeighted(t *testing.T) {
	w := stream.NewWeighted([]stream.Handler{balancer(t, server(t, "a")), balancer(t, server(t, "b")), balancer(t)},
		[]int{3, 1, 5}, new(atomic.Uint64))
	counts := map[string]int{}
	for range 8 {
		counts[ask(t, w)]++
	}
	if counts["a:"]+counts["b:"] != 8 || counts["a:"] < counts["b:"] {
		t.Errorf("shares %v, want none for the service without servers", counts)
	}
}

func TestAddresses(t *testing.T) {
	for _, text := range []string{"", "db", "db:", ":5432", "db:0", "db:65536", "db:pg", "tcp://db:1"} {
		if _, err := stream.ParseServer(text, false); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	for _, text := range []string{"db:5432", "10.0.0.2:1", "[2001:db8::1]:443"} {
		if _, err := stream.ParseServer(text, false); err != nil {
			t.Error(err)
		}
	}
}

func TestMiddlewares(t *testing.T) {
	b := balancer(t, server(t, "a"))
	for list, want := range map[string]string{"192.0.2.0/24": "a:", "192.0.2.1": "a:", "192.0.2.2": "error",
		"2001:db8::/32": "error"} {
		prefixes, err := stream.Prefixes([]string{list})
		if err != nil {
			t.Fatal(err)
		}
		if got := ask(t, stream.AllowList(prefixes, b)); got != want {
			t.Errorf("%s: %q, want %q", list, got, want)
		}
	}
	if _, err := stream.Prefixes([]string{"10.0.0.0/33"}); err == nil {
		t.Error("a wrong prefix is accepted")
	}
	limited := stream.NewLimiter().Limit(1, b)
	first, inner := place.Pair(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		limited.Serve(context.Background(), &stream.Client{Conn: inner, Address: netip.MustParseAddr("192.0.2.1")})
	}()
	if _, err := io.ReadFull(first, make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, limited); got != "error" {
		t.Errorf("a second connection gets %q, want a reset", got)
	}
	first.Close()
	<-ended
	if got := ask(t, limited); got != "a:" {
		t.Errorf("after the first: %q", got)
	}
}

func TestCheck(t *testing.T) {
	b := balancer(t, server(t, "a"), server(t, "b"), closed(t))
	changed := make(chan string, 10)
	stop := stream.Check{Send: "ping", Expect: "b:ping", Interval: time.Millisecond,
		UnhealthyInterval: time.Millisecond, Timeout: 10 * time.Second,
	}.Start(b.Servers, b.Transport, func(s *stream.Server, down bool, why string) {
		if down && why != "" {
			changed <- s.Address
		}
	})
	defer stop()
	down := map[string]bool{<-changed: true, <-changed: true}
	if !down[b.Servers[0].Address] || !down[b.Servers[2].Address] {
		t.Errorf("down: %v", down)
	}
	for range 4 {
		if got := ask(t, b); got != "b:" {
			t.Errorf("got %q, want only the server that is up", got)
		}
	}
}
