package entries

import (
	"io"
	"log/slog"
	"net"
	"testing"

	"fairlead/internal/gateway/observe"
	"fairlead/internal/gateway/snapshot"
	"fairlead/internal/model/gateway"
)

// TestPanicsOfOpenings lets the first bytes of a connection panic: it ends, and is not counted any more.
func TestPanicsOfOpenings(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	o, err := observe.New(&gateway.Static{})
	if err != nil {
		t.Fatal(err)
	}
	for name, panics := range map[string]func(*splitter){
		"PROXY header": func(s *splitter) { s.proxied = func(net.Conn) (net.Conn, error) { panic("a mistake") } },
		"TCP router":   func(s *splitter) { s.stream = func(net.Conn, func()) bool { panic("a mistake") } },
	} {
		t.Run(name, func(t *testing.T) {
			g := New(&gateway.Static{}, log, o, new(snapshot.Current), nil)
			l := g.newLimits(gateway.EntryPoint{Name: "web"}, nil)
			s := &splitter{accepting: &accepting{open: &g.open}, limits: l,
				proxied: func(c net.Conn) (net.Conn, error) { return c, nil }}
			panics(s)
			near, far := net.Pipe()
			g.open.add(1)
			s.split(near)
			if _, err := far.Read(make([]byte, 1)); err != io.EOF || l.Open() != 0 {
				t.Errorf("the connection: %v, %d are counted", err, l.Open())
			}
			select {
			case <-g.open.ended():
			default:
				t.Error("the connection counts as open")
			}
		})
	}
}
