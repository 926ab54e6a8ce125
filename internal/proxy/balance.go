package proxy

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Short connections cost least on the worker that accepted them: their events
// come in batches, and no other thread has to be woken. So a worker keeps the
// connections that it accepts until it has connectionSlack more than another.
// Bulk streams use most of a core's time. They move as soon as another worker
// has bulkSlack fewer of them.
const (
	connectionSlack = 16
	bulkSlack       = 2
)

func connectionsOf(c *counters) *atomic.Int64 { return &c.connections }

func bulkOf(c *counters) *atomic.Int64 { return &c.bulk }

// lightest returns the worker with the least load if that is at least slack
// below w's own, else w.
func (w *worker) lightest(load func(*counters) *atomic.Int64, slack int64) *worker {
	best, least := w, load(&w.counts).Load()-slack+1
	for _, p := range w.peers {
		if n := load(&p.counts).Load(); n < least {
			best, least = p, n
		}
	}
	return best
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
