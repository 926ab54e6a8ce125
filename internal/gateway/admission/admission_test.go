package admission

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"fairlead/internal/model/gateway"

	"github.com/prometheus/client_golang/prometheus"
)

// moving is a connection whose client changes its address, as one of QUIC can.
type moving struct{ address string }

func (m *moving) RemoteAddr() net.Addr {
	at, _ := net.ResolveUDPAddr("udp", m.address)
	return at
}

func limitsOf(t *testing.T, at gateway.EntryPoint) *Limits {
	t.Helper()
	return New(Settings{Log: slog.New(slog.DiscardHandler), Entry: at, Entries: 1,
		Trusts:  func(netip.Addr) bool { return false },
		Refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "refused"}, []string{"entry", "limit"})})
}

// TestLimitsOfClientsThatMove: a connection counts for the client that has opened it, wherever it is at its end.
func TestLimitsOfClientsThatMove(t *testing.T) {
	l := limitsOf(t, gateway.EntryPoint{Name: "web", MaxConnections: 10, MaxConnectionsPerClient: 1})
	c := &moving{"192.0.2.1:1"}
	for range 3 {
		c.address = "192.0.2.1:1"
		a := l.Enter(c, func() {})
		if a == nil {
			t.Fatal("the client has no connection, and gets none")
		}
		c.address = "192.0.2.2:2"
		a.Leave()
		a.Leave() // is harmless
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
	enter := func(name, address string) *Place {
		return l.Enter(&moving{address}, func() { ended[name] = true })
	}
	first, second, third := enter("first", "192.0.2.1:1"), enter("second", "192.0.2.2:1"), enter("third", "192.0.2.3:1")
	first.Heard()
	fourth := enter("fourth", "192.0.2.4:1")
	if fourth == nil || !ended["second"] || len(ended) != 1 {
		t.Fatalf("a new connection: accepted %v, ended %v, want the second to end", fourth != nil, ended)
	}
	second.Leave() // its goroutine notices the end
	third.Heard()
	fourth.Heard()
	if l.all != 3 || enter("fifth", "192.0.2.5:1") != nil || len(ended) != 1 {
		t.Errorf("%d connections, ended %v: a connection replaces one that was heard", l.all, ended)
	}
	first.Leave()
	if enter("sixth", "192.0.2.1:2") == nil {
		t.Error("the place of a connection that has ended is not free")
	}
}

// TestLimitsOfAClientReplaceNone: a client that has all its connections does not replace those of others.
func TestLimitsOfAClientReplaceNone(t *testing.T) {
	l := limitsOf(t, gateway.EntryPoint{Name: "web", MaxConnections: 2, MaxConnectionsPerClient: 1})
	other := l.Enter(&moving{"192.0.2.2:1"}, func() { t.Error("the other client's connection ends") })
	if other == nil || l.Enter(&moving{"192.0.2.1:1"}, func() { t.Error("its first connection ends") }) == nil {
		t.Fatal("a connection below the limits was refused")
	}
	if l.Enter(&moving{"192.0.2.1:2"}, func() {}) != nil {
		t.Error("a connection above the limit of a client was accepted")
	}
}
