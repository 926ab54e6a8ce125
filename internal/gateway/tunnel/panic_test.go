package tunnel_test

import (
	"io"
	"net"
	"testing"

	"fairlead/internal/gateway/tunnel"
)

// faulty is a connection whose Read panics.
type faulty struct{ net.Conn }

func (faulty) Read([]byte) (int, error) { panic("a mistake in Read") }

// TestPanicsEndOneTunnel lets one of two tunnels panic: it ends, and the other goes on.
func TestPanicsEndOneTunnel(t *testing.T) {
	for name, join := range joiners(t) {
		t.Run(name, func(t *testing.T) {
			client, server, _ := joinedBy(t, join)
			say(t, client, server, "before")
			bad, other, ended := joinedBy(t, func(a, b net.Conn) { join(faulty{a}, b) })
			_, _ = bad.Write([]byte("x"))
			<-ended
			for _, c := range []net.Conn{bad, other} {
				if _, err := c.Read(make([]byte, 1)); err == nil {
					t.Error("an end of the faulty tunnel is open")
				}
			}
			say(t, client, server, "after")
			say(t, server, client, "and back")
		})
	}
}

// TestPanicsInALoop lets a tunnel panic on the goroutine that it shares with others: it ends, and the
// others go on.
func TestPanicsInALoop(t *testing.T) {
	join := func(a, b net.Conn) { tunnel.JoinMessages(t.Context(), a, b) }
	var ends [8][2]*net.TCPConn
	for i := range ends {
		ends[i][0], ends[i][1], _ = joinedBy(t, join)
		say(t, ends[i][0], ends[i][1], "before")
	}
	bad, other, ended := joinedBy(t, join)
	say(t, bad, other, "before")
	tunnel.Break(bad)
	_, _ = bad.Write([]byte("x"))
	<-ended
	if _, err := io.ReadAll(bad); err == nil {
		t.Error("the faulty tunnel has not failed")
	}
	for _, e := range ends {
		say(t, e[0], e[1], "after")
		say(t, e[1], e[0], "and back")
	}
}
