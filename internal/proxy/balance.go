package proxy

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Short connections cost least on the worker that accepted them: their events
// come in batches, and no other thread has to be woken. So a worker keeps the
// connections that it accepts until it has connectionSlack more than another.
//
// Bulk streams use most of a core's time, and the scheduler lets a thread that never
// sleeps wait for milliseconds when there are more such threads than cores. A small
// transfer on that thread would wait too. So a stream moves to a thread that has only
// streams once it has moved streamAfter bytes, and returns when its transfers are small
// again. Shorter transfers end before they move.
const (
	connectionSlack = 16
	streamAfter     = 1 << 20
)

func connectionsOf(c *counters) *atomic.Int64 { return &c.connections }

func bulkOf(c *counters) *atomic.Int64 { return &c.bulk }

// lightest returns the first of the workers with the least load.
func lightest(workers []*worker, load func(*counters) *atomic.Int64) *worker {
	best := workers[0]
	for _, w := range workers[1:] {
		if load(&w.counts).Load() < load(&best.counts).Load() {
			best = w
		}
	}
	return best
}

// workerForClient returns the worker for a client that w has accepted.
func (w *worker) workerForClient() *worker {
	best := lightest(w.clients, connectionsOf)
	if w.counts.connections.Load()-best.counts.connections.Load() < connectionSlack {
		return w
	}
	return best
}

// workerFor returns the worker for an open connection of w.
func (w *worker) workerFor(c *conn) *worker {
	stream := c.piped()
	switch {
	case w.turn == clientTurn && stream && c.half[inward].streamed+c.half[outward].streamed >= streamAfter:
		return lightest(w.streams, bulkOf)
	case w.turn == streamTurn && !stream:
		return lightest(w.clients, connectionsOf)
	}
	return w
}

// give moves a connection to another worker.
func (w *worker) give(c *conn, to *worker) {
	for _, fd := range c.fd {
		_ = w.control(unix.EPOLL_CTL_DEL, fd, 0, c.slot, 0)
	}
	w.slots.remove(c.slot)
	w.connected(c.group, -1)
	to.connected(c.group, 1)
	for d := range c.half {
		if c.half[d].piped {
			w.counts.bulk.Add(-1)
			to.counts.bulk.Add(1)
		}
	}
	to.post(letter{conn: c})
}

// adopt continues a connection that another worker has moved here. Its listener
// may have been removed meanwhile.
func (w *worker) adopt(c *conn) {
	if !c.attach(w) {
		return
	}
	if c.group.ended.Load() {
		c.abort(w)
		return
	}
	c.pump(w)
}
