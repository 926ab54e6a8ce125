package soak_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/test/place"
)

// beat is the time between two requests of a conversation.
const beat = 100 * time.Millisecond

// serve answers every line and datagram to the port with the workload's name and port, followed by
// the received text.
func serve(t *testing.T, in place.Place, name string, port uint16) {
	t.Helper()
	place.Answer(t, in, fmt.Sprint(":", port), func(r place.Request) string {
		return fmt.Sprintf("%s:%d %s", name, port, r.Text)
	})
}

// ask sends a word and returns the name of the workload that echoes it. It never repeats a request:
// a word without an answer in time is lost.
func ask(conn net.Conn, word string, wait time.Duration) (name string, err error) {
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(conn, word); err != nil {
		return "", err
	}
	buf := make([]byte, 256)
	n, err := conn.Read(buf)
	if err != nil {
		return "", err
	}
	name, echo, _ := strings.Cut(strings.TrimSpace(string(buf[:n])), " ")
	if echo != word {
		return name, fmt.Errorf("sent %q, received %q", word, echo)
	}
	return name, nil
}

// vantage is a place of clients, with the host addresses to which they connect from there.
type vantage struct {
	name  string
	place place.Place
	hosts []netip.Addr
}

// serverHost is the place whose clients' sockets are redirected at connect.
const serverHost = "server host"

// vantages returns the client host, every sandbox, and the server host itself.
func (w *world) vantages() []vantage {
	lan := []netip.Addr{topology.ServerAddr4, topology.ServerAddr6}
	own := append([]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}, lan...)
	all := []vantage{{"client host", w.DoClient, lan}, {serverHost, w.DoServer, own}}
	for _, name := range names {
		all = append(all, vantage{name, w.in(name), lan})
	}
	return all
}

// talk is a conversation that must not break: one request after the other.
type talk struct {
	name string
	conn net.Conn
	want string
	// translated is true if the conversation's packets are translated, and false if its socket is
	// redirected.
	translated bool
	wrongs     wrongs

	answers, slowest atomic.Int64
}

// converse opens a conversation from every place to every publish that stays.
func converse(t *testing.T, w *world) []*talk {
	t.Helper()
	var all []*talk
	for _, from := range w.vantages() {
		for _, host := range from.hosts {
			for endpoint, port := range keptPorts {
				for _, proto := range protos {
					all = append(all, open(t, from, proto, netip.AddrPortFrom(host, port),
						fmt.Sprintf("%s:%d", endpoint, kept)))
				}
			}
		}
	}
	return all
}

func open(t *testing.T, from vantage, proto model.Proto, to netip.AddrPort, want string) *talk {
	t.Helper()
	talk := &talk{name: fmt.Sprintf("%s from %s to %s", proto, from.name, to), want: want,
		translated: from.name != serverHost}
	var err error
	if talk.conn, err = place.Dial(from.place, string(proto), to.String(), place.Timeout); err != nil {
		t.Fatalf("%s: %v", talk.name, err)
	}
	return talk
}

// run sends requests until the context ends or no answer arrives.
func (t *talk) run(ctx context.Context) {
	defer t.conn.Close()
	for n := 0; ctx.Err() == nil; n++ {
		asked := time.Now()
		name, err := ask(t.conn, fmt.Sprintf("word-%d", n), place.Timeout)
		if err != nil || name != t.want {
			t.wrongs.note(fmt.Errorf("%s: %q answers request %d, want %s: %w", t.name, name, n, t.want, err))
			return
		}
		t.answers.Add(1)
		t.slowest.Store(max(t.slowest.Load(), int64(time.Since(asked))))
		time.Sleep(beat)
	}
}
