package overlay_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/test/place"
)

// messages are numbered datagrams in both directions between two sandboxes.
type messages struct {
	sent, arrived atomic.Int64
	stop          chan struct{}
	senders       sync.WaitGroup
}

// exchange sends datagrams in both directions until end is called.
func exchange(t testing.TB, one, two place.Place, addrs [2]netip.Addr) *messages {
	t.Helper()
	m := &messages{stop: make(chan struct{})}
	var conns []net.PacketConn
	for _, in := range []place.Place{one, two} {
		c, err := place.ListenPacket(in, ":4711")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		conns = append(conns, c)
	}
	for i, c := range conns {
		go m.receive(c)
		to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(addrs[1-i], 4711))
		m.senders.Go(func() { m.send(t, c, to) })
	}
	return m
}

// goesOn waits until 20 more datagrams have arrived.
func (m *messages) goesOn(t testing.TB) {
	t.Helper()
	until := m.arrived.Load() + 20
	for end := time.Now().Add(3 * place.Timeout); m.arrived.Load() < until; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d messages have arrived, and no more do", m.arrived.Load(), m.sent.Load())
		}
	}
}

// end ends the exchange, and returns how many datagrams were sent, and how many of them were lost.
func (m *messages) end() (sent, lost int64) {
	close(m.stop)
	m.senders.Wait()
	for end := time.Now().Add(2 * place.Timeout); m.arrived.Load() < m.sent.Load() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	return m.sent.Load(), m.sent.Load() - m.arrived.Load()
}

// messageEvery is long enough that the kernel keeps all messages (128 for each peer) until it repeats a handshake
// that was lost, after 5 seconds.
const messageEvery = 100 * time.Millisecond

// send sends a datagram every messageEvery until stop is closed.
func (m *messages) send(t testing.TB, c net.PacketConn, to net.Addr) {
	tick := time.NewTicker(messageEvery)
	defer tick.Stop()
	for n := uint64(0); ; n++ {
		select {
		case <-tick.C:
		case <-m.stop:
			return
		}
		if _, err := c.WriteTo(binary.BigEndian.AppendUint64(nil, n), to); err != nil {
			t.Errorf("send message %d: %v", n, err)
			return
		}
		m.sent.Add(1)
	}
}

// receive counts the datagrams, each once.
func (m *messages) receive(c net.PacketConn) {
	seen := map[uint64]bool{}
	buf := make([]byte, 16)
	for {
		if _, _, err := c.ReadFrom(buf); err != nil {
			return
		}
		if n := binary.BigEndian.Uint64(buf); !seen[n] {
			seen[n] = true
			m.arrived.Add(1)
		}
	}
}
