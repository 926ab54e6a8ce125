package attack_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/internal/model"
	"fairlead/internal/threat"
)

// The ports that Linux chooses for clients by default
// (net.ipv4.ip_local_port_range).
const (
	firstLocalPort = 32768
	localPorts     = 28232
)

// clients is the number of conversations of a client in each flood.
const clients = 20

// synCount is the number of SYNs of one flood; FAIRLEAD_SYNS overrides it. The
// default exceeds the size of the map of half-open connections.
func synCount(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv("FAIRLEAD_SYNS"), "20000"))
	if err != nil {
		t.Fatalf("read FAIRLEAD_SYNS: %v", err)
	}
	return n
}

// TestFloods floods a port that is published via ebpf with forged packets, from the LAN and from a
// container. Every conversation of a client on the LAN must succeed. Only the container forges the
// client's address: a host of the LAN can take the address of a neighbour, as with nat.
func TestFloods(t *testing.T) {
	w := newWorld(t)
	cell := threat.Cell{Driver: model.DriverBridge, Via: model.ViaEBPF}
	for _, attacker := range []threat.Attacker{threat.LANHost, threat.SameNetwork} {
		c := cell
		c.Attacker = attacker
		for _, f := range onlyTCP {
			t.Run("SYNs/"+f.String()+"/"+string(attacker), func(t *testing.T) { w.floodIdle(t, c, f) })
		}
	}
	cell.Attacker = threat.SameNetwork
	for _, f := range each {
		t.Run("client's ports/"+f.String(), func(t *testing.T) { w.floodClient(t, cell, f) })
	}
}

// floodIdle sends SYNs from many addresses and ports while connections of a client are idle. Then
// the container sends first on half of them: only the flow shows the eBPF programs where these
// packets go.
func (w *world) floodIdle(t *testing.T, c threat.Cell, f flavor) {
	var idle []talk
	for range clients {
		conn, _, err := w.live(c, f)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		idle = append(idle, conn)
	}
	syns, before := synCount(t), w.segments(c)
	sources := lanNeighbors(f.v4)
	if name := box(c.Attacker, c.Driver); name != "" {
		sources = append(sources[:1], w.address(name, f.v4)) // the host answers only its own address of these two
	}
	began := time.Now()
	err := w.from(c.Attacker, c.Driver).stream(syns, func(int) []byte {
		src := netip.AddrPortFrom(sources[rand.IntN(len(sources))], uint16(1024+rand.IntN(1<<16-1024)))
		return segment{proto: model.TCP, src: src, dst: w.at(c, f), flags: syn, seq: rand.Uint32()}.packet()
	})
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	broken := 0
	for i, conn := range idle {
		if err := w.again(c, conn, i%2 == 0); err != nil {
			broken++
			t.Logf("%s: %v", conn.LocalAddr(), err)
		}
	}
	arrived := w.segments(c) - before
	t.Logf("%d SYNs in %s, of which %d arrive, break %d of %d idle connections", syns, took.Round(time.Millisecond),
		arrived, broken, clients)
	if broken > 0 {
		t.Errorf("%d of %d idle connections are broken", broken, clients)
	}
}

// again sends data over an idle connection, first from the container's side or from the client's.
func (w *world) again(c threat.Cell, conn talk, container bool) error {
	text := nonce()
	if !container {
		return conn.ask(victim(c.Driver), text)
	}
	if err := w.servers[victim(c.Driver)].say(conn.LocalAddr(), text); err != nil {
		return err
	}
	return conn.hear(text)
}

// floodClient sends first packets with the client's source address from every port that Linux may
// choose for it. The client then opens conversations from some of these ports.
func (w *world) floodClient(t *testing.T, c threat.Cell, f flavor) {
	client, attacker := w.client.Address(0, f.v4), w.from(c.Attacker, c.Driver)
	tap, err := attacker.tap()
	if err != nil {
		t.Fatal(err)
	}
	defer tap.close()
	order := rand.Perm(localPorts)
	began := time.Now()
	err = attacker.stream(localPorts, func(n int) []byte {
		return forged(f, netip.AddrPortFrom(client, uint16(firstLocalPort+order[n])), w.at(c, f))
	})
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	reached := 0
	for n := range clients {
		from := netip.AddrPortFrom(client, uint16(firstLocalPort+order[n]))
		if err := position(w.client.Do).converse(f.proto, from, w.at(c, f), victim(c.Driver), nonce()); err != nil {
			t.Logf("%s: %v", from, err)
			continue
		}
		reached++
	}
	t.Logf("after %d forged packets in %s, %d of %d conversations succeed", localPorts, took.Round(time.Millisecond),
		reached, clients)
	if reached < clients {
		t.Errorf("%d of %d conversations fail", clients-reached, clients)
	}
	taken := func(frame []byte) bool {
		src, dst, ok := ports(frame)
		return ok && dst >= firstLocalPort && (src == workPort || src == hostPort(c.Driver, c.Via))
	}
	if tap.received(taken) {
		t.Error("the attacker receives an answer to the client")
	}
}

// segments returns how many TCP segments the victim has received.
func (w *world) segments(c threat.Cell) (n int) {
	w.t.Helper()
	out := w.sh(w.host.In(victim(c.Driver)), "grep ^Tcp: /proc/thread-self/net/snmp | tail -1 | cut -d' ' -f11")
	if _, err := fmt.Sscan(out, &n); err != nil {
		w.t.Fatalf("read the victim's TCP segments in %q: %v", out, err)
	}
	return n
}

// lanNeighbors are addresses of the LAN that no host has.
func lanNeighbors(v4 bool) (all []netip.Addr) {
	first := map[bool]netip.Addr{true: netip.MustParseAddr("198.51.100.64"),
		false: netip.MustParseAddr("2001:db8::40")}[v4]
	for a := first; len(all) < 48; a = a.Next() {
		all = append(all, a)
	}
	return all
}

// stream sends count packets from all CPUs; the function packet makes each.
func (p position) stream(count int, packet func(n int) []byte) error {
	const batch = 1000
	var next atomic.Int64
	var senders sync.WaitGroup
	errs := make([]error, runtime.NumCPU())
	for i := range errs {
		senders.Go(func() {
			for errs[i] == nil {
				end := int(next.Add(batch))
				if end-batch >= count {
					return
				}
				var packets [][]byte
				for n := end - batch; n < min(end, count); n++ {
					packets = append(packets, packet(n))
				}
				errs[i] = p.send(packets...)
			}
		})
	}
	senders.Wait()
	return errors.Join(errs...)
}
