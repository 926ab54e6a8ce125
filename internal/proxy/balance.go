package proxy

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Short connections are cheapest where they were accepted: their events come
// in batches, and no other thread has to be woken. So a worker keeps what it
// accepts until it has connectionSlack more than another. Streams that prove
// bulky are what fills a core; they move as soon as another worker has two
// fewer of them.
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

// give passes a connection on to another worker.
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

// adopt goes on with a connection of another worker, whose listener may have
// been removed meanwhile.
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
