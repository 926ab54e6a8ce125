package proxy

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// line is a connection of a worker with the sockets of its client and its target.
type line struct{ client, target int }

// newPair returns a worker for clients and one for bulk streams.
func newPair(t *testing.T) (clients, streams *worker) {
	t.Helper()
	workers, err := newWorkers(1, defaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	return workers[0], workers[1]
}

// newLine gives a worker a connection whose sockets hold 4 MiB.
func newLine(t *testing.T, w *worker) line {
	t.Helper()
	var ends [2][2]int
	for i := range ends {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = pair
		for _, fd := range pair {
			t.Cleanup(func() { unix.Close(fd) })
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4<<20); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := &conn{fd: [2]int{ends[inward][0], ends[outward][0]}, group: &group{counts: make([]tally, 2)}, live: true}
	if !c.attach(w) {
		t.Fatal("the worker does not watch the connection")
	}
	w.connected(c.group, 1)
	return line{client: ends[inward][1], target: ends[outward][1]}
}

// TestSmallTransferWaitsForOneTurn: beside bulk streams whose data never ends, one
// pass of a worker forwards what a small connection has sent, and at most one turn
// of one stream. The streams get their turns one after another.
func TestSmallTransferWaitsForOneTurn(t *testing.T) {
	const streams = 4
	w, _ := newPair(t)
	events := make([]unix.EpollEvent, eventBatch)
	small := newLine(t, w)
	var bulk [streams]line
	for i := range bulk {
		bulk[i] = newLine(t, w)
	}
	chunk := make([]byte, 1<<20)
	refill := func() {
		for _, l := range bulk {
			for range 2 {
				_, _ = unix.Write(l.client, chunk) // until the socket is full
			}
			for n := 1; n > 0; {
				n, _ = unix.Read(l.target, chunk)
			}
		}
	}
	for range 4 * streams {
		refill()
		w.pass(events)
	}
	if n := w.counts.bulk.Load(); n != streams {
		t.Fatalf("%d directions have a pipe, want %d", n, streams)
	}
	for range 2 * streams {
		refill()
		if _, err := unix.Write(small.client, []byte("?")); err != nil {
			t.Fatal(err)
		}
		before := w.counts.bytesIn.Load()
		w.pass(events)
		if n, err := unix.Read(small.target, make([]byte, 8)); n != 1 || err != nil {
			t.Fatalf("after one pass the target has %d bytes of the small connection, %v", n, err)
		}
		if moved := w.counts.bytesIn.Load() - before - 1; moved == 0 || moved > clientTurn {
			t.Fatalf("the pass moved %d bytes of bulk streams, want one turn of %d at most", moved, clientTurn)
		}
	}
	refill()
	for range streams {
		w.pass(events)
	}
	for i, l := range bulk {
		if n, _ := unix.Read(l.target, chunk); n <= 0 {
			t.Errorf("stream %d had no turn in %d passes", i, streams)
		}
	}
}

// sequence is an endless sequence of bytes, of which n were written or read.
type sequence struct{ n int }

func (s *sequence) next(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte((s.n + i) % 251)
	}
	s.n += n
	return b
}

// TestBulkStreamHasAnotherWorker: a stream moves to the worker of streams, and returns to
// that of clients when its transfers are small. No byte is lost on the way.
func TestBulkStreamHasAnotherWorker(t *testing.T) {
	clients, streams := newPair(t)
	events, l := make([]unix.EpollEvent, eventBatch), newLine(t, clients)
	var sent, got sequence
	transfer := func(w *worker, n int) {
		if _, err := unix.Write(l.client, sent.next(n)); err != nil {
			t.Fatal(err)
		}
		w.pass(events)
		b := make([]byte, 4<<20)
		if n, _ := unix.Read(l.target, b); n > 0 && !bytes.Equal(b[:n], got.next(n)) {
			t.Fatal("the target gets other bytes than the client sent")
		}
	}
	for streams.counts.connections.Load() == 0 && sent.n < 4<<20 {
		transfer(clients, 64<<10)
	}
	for streams.counts.connections.Load() == 1 && sent.n < 5<<20 {
		transfer(streams, 1)
	}
	clients.pass(events) // which adopts it
	transfer(clients, 1)
	if c, s := clients.counts.connections.Load(), streams.counts.connections.Load(); c != 1 || s != 0 {
		t.Errorf("%d connections with the worker of clients and %d with that of streams, want 1 and 0", c, s)
	}
	if got.n < streamAfter || got.n != sent.n {
		t.Errorf("the client sent %d bytes and the target got %d, want the same and more than %d", sent.n, got.n,
			streamAfter)
	}
}
