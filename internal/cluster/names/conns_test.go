package names

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/test/place"
	"fairlead/test/process"
)

// TestHalfQuestions opens 300 connections from one sandbox and sends a half question on each. Another sandbox still
// gets its answers over TCP, although the server waits for the rest of the half questions during the whole test.
func TestHalfQuestions(t *testing.T) {
	host, greedy, other := kerneltest.Netns(t), kerneltest.Netns(t), kerneltest.Netns(t)
	kerneltest.Run(t, host, "ip", "link", "add", "shop", "up", "type", "bridge")
	kerneltest.Run(t, host, "ip", "addr", "add", "10.9.0.1/16", "dev", "shop")
	for name, sandbox := range map[string]struct{ path, address string }{
		"v1": {greedy.Path(), "10.9.0.8/16"}, "v2": {other.Path(), "10.9.0.9/16"}} {
		kerneltest.Run(t, host, "ip", "link", "add", name, "up", "master", "shop", "type", "veth", "peer", "name",
			"eth0", "netns", process.Seen(sandbox.path))
		ns := greedy
		if name == "v2" {
			ns = other
		}
		kerneltest.Run(t, ns, "ip", "addr", "add", sandbox.address, "dev", "eth0")
		kerneltest.Run(t, ns, "ip", "link", "set", "eth0", "up")
	}
	s := NewServer(slog.New(slog.DiscardHandler), host.Do)
	s.idle = time.Hour
	t.Cleanup(s.Close)
	s.Update(shop())
	if failed := s.Set([]Network{{Name: "shop", Addresses: []netip.Addr{netip.MustParseAddr("10.9.0.1")},
		Subnets: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}}}); len(failed) > 0 {
		t.Fatal(failed)
	}
	for range 300 {
		conn, err := place.Dial(greedy.Do, "tcp", "10.9.0.1:53", place.Timeout)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := conn.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
	}
	for _, from := range []string{"another sandbox", "the same sandbox"} {
		ns := other
		if from == "the same sandbox" {
			ns = greedy
		}
		if r, err := ask(ns, "tcp", "10.9.0.1:53", netip.Addr{}, place.Timeout); err != nil || len(r.Answer) != 2 {
			t.Errorf("%s: %v %v", from, r, err)
		}
	}
}

// dialled is a connection of a client that records its end.
type dialled struct {
	net.Conn
	from  string
	ended bool
}

func (d *dialled) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(d.from), 1))
}

func (d *dialled) Close() error {
	d.ended = true
	return nil
}

// queue is a listener that returns the connections in it.
type queue struct {
	net.Listener
	waiting []net.Conn
}

func (q *queue) Accept() (net.Conn, error) {
	next := q.waiting[0]
	q.waiting = q.waiting[1:]
	return next, nil
}

// clients opens connections at a listener that no client of address 192.0.2.1 may use.
type clients struct {
	*testing.T
	*fairListener
	waiting *queue
}

func newClients(t *testing.T) clients {
	t.Helper()
	q := &queue{}
	return clients{t, newFairListener(q, func(a netip.Addr) bool { return a != netip.MustParseAddr("192.0.2.1") }), q}
}

func (c clients) enter(from string) (*dialled, net.Conn) {
	c.Helper()
	d := &dialled{from: from}
	c.waiting.waiting = append(c.waiting.waiting, d)
	accepted, err := c.Accept()
	if err != nil {
		c.Fatal(err)
	}
	return d, accepted
}

// TestFairShare fills a listener by many clients: a new connection ends the oldest one of the client that has the most,
// and none of a client with fewer.
func TestFairShare(t *testing.T) {
	c := newClients(t)
	least, _ := c.enter("10.9.2.1")
	var greedy []*dialled
	for i := range maxConns - 1 {
		d, _ := c.enter(netip.AddrFrom4([4]byte{10, 9, 1, byte(i / (maxConnsPerClient - 1))}).String())
		greedy = append(greedy, d)
	}
	c.enter("10.9.2.2")
	if ended := count(greedy); ended != 1 || least.ended || c.all != maxConns {
		t.Errorf("%d connections ended for one, the only one of a client: %t, counted: %d", ended, least.ended, c.all)
	}
}

// TestConnectionsOfAClient: a client with too many connections ends its own oldest one. A connection of a client that
// may not ask is closed and not counted, and a connection that is closed twice counts once.
func TestConnectionsOfAClient(t *testing.T) {
	c := newClients(t)
	other, _ := c.enter("10.9.2.1")
	first, _ := c.enter("10.9.2.2")
	for range maxConnsPerClient - 1 {
		c.enter("10.9.2.2")
	}
	if first.ended {
		t.Error("a connection ended below the limit")
	}
	stranger := &dialled{from: "192.0.2.1"}
	c.waiting.waiting = append(c.waiting.waiting, stranger)
	_, last := c.enter("10.9.2.2")
	if !first.ended || other.ended || !stranger.ended || c.all != maxConnsPerClient+1 {
		t.Errorf("the oldest connection ended: %t, that of another client: %t, that of a stranger: %t, counted: %d",
			first.ended, other.ended, stranger.ended, c.all)
	}
	var closing sync.WaitGroup
	for range 2 {
		closing.Go(func() { last.Close() })
	}
	closing.Wait()
	if c.all != maxConnsPerClient {
		t.Errorf("%d connections are counted, want %d", c.all, maxConnsPerClient)
	}
}

func count(all []*dialled) (ended int) {
	for _, d := range all {
		if d.ended {
			ended++
		}
	}
	return ended
}
