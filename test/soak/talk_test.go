package soak_test

import (
	"bufio"
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
)

// beat is the time between a conversation's requests.
const beat = 100 * time.Millisecond

// serve answers every line and datagram to the port with the workload's name
// and port before it.
func serve(t *testing.T, in place, name string, port uint16) {
	t.Helper()
	var l net.Listener
	var c net.PacketConn
	if err := in(func() (err error) {
		if l, err = net.Listen("tcp", fmt.Sprintf(":%d", port)); err != nil {
			return err
		}
		c, err = net.ListenPacket("udp", fmt.Sprintf(":%d", port))
		return err
	}); err != nil {
		t.Fatalf("serve %s: %v", name, err)
	}
	t.Cleanup(func() { l.Close(); c.Close() })
	go serveLines(l, fmt.Sprintf("%s:%d", name, port))
	go serveDatagrams(c, fmt.Sprintf("%s:%d", name, port))
}

func serveLines(l net.Listener, name string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				fmt.Fprintln(conn, name, lines.Text())
			}
		}()
	}
}

func serveDatagrams(c net.PacketConn, name string) {
	buf := make([]byte, 256)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		_, _ = c.WriteTo(append([]byte(name+" "), buf[:n]...), from)
	}
}

// ask says a word and returns who repeats it. One that is not repeated by then
// is lost: nothing is asked twice.
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
		return name, fmt.Errorf("asked %q, it answered %q", word, echo)
	}
	return name, nil
}

// vantage is a place that clients are in, and the host addresses that they
// dial from there.
type vantage struct {
	name  string
	place place
	hosts []netip.Addr
}

// serverHost is the place whose clients are turned at connect.
const serverHost = "server host"

// vantages are the client host, every sandbox, and the server host itself.
func (w *world) vantages() []vantage {
	lan := []netip.Addr{topology.ServerAddr4, topology.ServerAddr6}
	own := append([]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}, lan...)
	all := []vantage{{"client host", w.DoClient, lan}, {serverHost, w.DoServer, own}}
	for _, name := range names {
		all = append(all, vantage{name, w.in(name), lan})
	}
	return all
}

// talk is a conversation that must last: one request after the other.
type talk struct {
	name string
	conn net.Conn
	want string
	// translated is true if its packets are translated, and not its socket.
	translated bool
	wrongs     wrongs

	answers, slowest atomic.Int64
}

// converse opens a conversation from everywhere to every publish that stays.
func converse(t *testing.T, w *world) []*talk {
	t.Helper()
	var all []*talk
	for _, from := range w.vantages() {
		for _, host := range from.hosts {
			for endpoint, port := range keptPorts {
				for _, proto := range protos {
					all = append(all, open(t, from, proto, netip.AddrPortFrom(host, port), fmt.Sprintf("%s:%d", endpoint, kept)))
				}
			}
		}
	}
	return all
}

func open(t *testing.T, from vantage, proto model.Proto, to netip.AddrPort, want string) *talk {
	t.Helper()
	talk := &talk{name: fmt.Sprintf("%s from %s to %s", proto, from.name, to), want: want, translated: from.name != serverHost}
	err := from.place(func() (err error) {
		talk.conn, err = net.DialTimeout(string(proto), to.String(), patience)
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", talk.name, err)
	}
	return talk
}

// run asks until the context ends or no answer comes.
func (t *talk) run(ctx context.Context) {
	defer t.conn.Close()
	for n := 0; ctx.Err() == nil; n++ {
		asked := time.Now()
		name, err := ask(t.conn, fmt.Sprintf("word-%d", n), patience)
		if err != nil || name != t.want {
			t.wrongs.note(fmt.Errorf("%s: request %d is answered by %q, not by %s: %w", t.name, n, name, t.want, err))
			return
		}
		t.answers.Add(1)
		t.slowest.Store(max(t.slowest.Load(), int64(time.Since(asked))))
		time.Sleep(beat)
	}
}
