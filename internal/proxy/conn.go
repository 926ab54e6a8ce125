package proxy

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// conn is a client's connection together with the proxy's connection to the
// target. fd[inward] is the client's socket, fd[outward] the target's. half[d]
// forwards what is read from fd[d].
type conn struct {
	fd         [2]int
	half       [2]half
	slot       slotID
	group      *group
	from       netip.AddrPort // the client; set only for a PROXY header
	live       bool
	connecting bool
	queued     bool
}

// edges are the events that both descriptors are registered for.
const edges = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff

// begin connects an accepted client, which is counted already, to its target.
func (w *worker) begin(came arrival) {
	c := &conn{group: came.group, from: came.from, live: true, connecting: true}
	target, e := w.dial(came.group, came.offset)
	if e != 0 {
		reset(came.fd)
		w.connected(came.group, -1)
		return
	}
	c.fd = [2]int{came.fd, target}
	c.attach(w)
}

// attach registers a connection with its worker.
func (c *conn) attach(w *worker) bool {
	c.slot = w.slots.add(c)
	for side, fd := range c.fd {
		if e := w.watch(fd, edges, c.slot, direction(side)); e != 0 {
			c.abort(w)
			return false
		}
	}
	return true
}

// ready records the events of one side and forwards what it can.
func (c *conn) ready(w *worker, events uint32, side direction) {
	const gone = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	if events&(unix.EPOLLIN|gone) != 0 {
		c.half[side].readable = true
		c.half[side].ending = c.half[side].ending || events&gone != 0
	}
	if events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		c.half[1-side].writable = true
	}
	switch {
	case c.queued:
		return
	case c.connecting && events&(unix.EPOLLHUP|unix.EPOLLERR) != 0:
		// The target refused, or the client gave up before it answered.
		c.abort(w)
		return
	case c.connecting && side == inward:
		return
	case c.connecting && events&unix.EPOLLOUT == 0:
		return
	case c.connecting:
		c.connecting = false
		c.half[outward].writable = true
		if c.group.ProxyProtocol != 0 && !c.sendHeader(w) {
			return
		}
	case c.piped():
		// A bulk stream waits for its turn. The others are served at once.
		w.enqueue(c)
		return
	}
	c.pump(w)
}

// sendHeader sends the PROXY protocol header before anything else. A new
// connection's send buffer always has room for it.
func (c *conn) sendHeader(w *worker) bool {
	var local sockaddr
	if e := localName(c.fd[inward], &local); e != 0 {
		c.abort(w)
		return false
	}
	header := appendHeader(w.buffer[:0], c.group.ProxyProtocol, c.from, local.addrPort())
	if n, e := send(c.fd[outward], header); e != 0 || n < len(header) {
		c.abort(w)
		return false
	}
	return true
}

// piped reports whether a direction has a pipe.
func (c *conn) piped() bool { return c.half[inward].piped || c.half[outward].piped }

// pump forwards in both directions for one turn.
func (c *conn) pump(w *worker) {
	again := false
	for d := range direction(2) {
		switch c.move(w, d) {
		case moveBroken:
			c.abort(w)
			return
		case moveMore:
			again = true
		}
	}
	if c.half[inward].done && c.half[outward].done {
		c.close(w, closeFD)
		return
	}
	if to := w.workerFor(c); to != w {
		w.give(c, to)
		return
	}
	if again {
		w.enqueue(c)
	}
}

// abort sends a RST to both sides, so that neither takes the end for a normal
// close.
func (c *conn) abort(w *worker) { c.close(w, reset) }

func (c *conn) close(w *worker, end func(fd int)) {
	end(c.fd[inward])
	end(c.fd[outward])
	for d := range c.half {
		c.half[d].release(w)
	}
	c.live = false
	w.retryAt = 0 // there are free descriptors again
	w.slots.remove(c.slot)
	w.connected(c.group, -1)
}
