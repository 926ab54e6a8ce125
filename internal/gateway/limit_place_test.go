package gateway

import (
	"log/slog"
	"net"
	"testing"

	"fairlead/internal/gateway/forwarded"
	"fairlead/internal/model/gateway"
)

// moving is a connection whose client changes its address, as one of QUIC can.
type moving struct{ address string }

func (m *moving) RemoteAddr() net.Addr {
	at, _ := net.ResolveUDPAddr("udp", m.address)
	return at
}

func limitsOf(t *testing.T, at gateway.EntryPoint) *limits {
	t.Helper()
	g, err := New(gateway.Static{EntryPoints: []gateway.EntryPoint{at}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g.newLimits(at, forwarded.Headers{})
}

// TestLimitsOfClientsThatMove: a connection counts for the client that has opened it, wherever it is at its end.
func TestLimitsOfClientsThatMove(t *testing.T) {
	l := limitsOf(t, gateway.EntryPoint{Name: "web", MaxConnections: 10, MaxConnectionsPerClient: 1})
	c := &moving{"192.0.2.1:1"}
	for range 3 {
		c.address = "192.0.2.1:1"
		a := l.enter(c, func() {})
		if a == nil {
			t.Fatal("the client has no connection, and gets none")
		}
		c.address = "192.0.2.2:2"
		a.leave()
		a.leave() // is harmless
	}
	if l.all != 0 || len(l.clients) != 0 || l.silent.Len() != 0 {
		t.Errorf("%d connections remain, of %v", l.all, l.clients)
	}
}

// TestLimitsReplaceTheOldestSilent fills an entry point: a new connection replaces the oldest one that is silent
// still, and none that has been heard.
func TestLimitsReplaceTheOldestSilent(t *testing.T) {
	l := limitsOf(t, gateway.EntryPoint{Name: "web", MaxConnections: 3, MaxConnectionsPerClient: 3})
	ended := map[string]bool{}
	enter := func(name, address string) *admission {
		return l.enter(&moving{address}, func() { ended[name] = true })
	}
	first, second, third := enter("first", "192.0.2.1:1"), enter("second", "192.0.2.2:1"), enter("third", "192.0.2.3:1")
	first.heard()
	fourth := enter("fourth", "192.0.2.4:1")
	if fourth == nil || !ended["second"] || len(ended) != 1 {
		t.Fatalf("a new connection: accepted %v, ended %v, want the second to end", fourth != nil, ended)
	}
	second.leave() // its goroutine notices the end
	third.heard()
	fourth.heard()
	if l.all != 3 || enter("fifth", "192.0.2.5:1") != nil || len(ended) != 1 {
		t.Errorf("%d connections, ended %v: a connection replaces one that was heard", l.all, ended)
	}
	first.leave()
	if enter("sixth", "192.0.2.1:2") == nil {
		t.Error("the place of a connection that has ended is not free")
	}
}

// TestLimitsOfAClientReplaceNone: a client that has all its connections does not replace those of others.
func TestLimitsOfAClientReplaceNone(t *testing.T) {
	l := limitsOf(t, gateway.EntryPoint{Name: "web", MaxConnections: 2, MaxConnectionsPerClient: 1})
	other := l.enter(&moving{"192.0.2.2:1"}, func() { t.Error("the other client's connection ends") })
	if other == nil || l.enter(&moving{"192.0.2.1:1"}, func() { t.Error("its first connection ends") }) == nil {
		t.Fatal("a connection below the limits was refused")
	}
	if l.enter(&moving{"192.0.2.1:2"}, func() {}) != nil {
		t.Error("a connection above the limit of a client was accepted")
	}
}
