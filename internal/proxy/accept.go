package proxy

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// acceptBatch bounds the connections taken from one listener a wake-up.
const acceptBatch = 16

// arrival is an accepted connection on its way to its worker.
type arrival struct {
	fd     int
	from   netip.AddrPort
	group  *group
	offset uint16
}

// accept takes new connections, and passes them on if it has many.
func (s *socket) accept(w *worker) {
	for range acceptBatch {
		var from sockaddr
		fd, e := accept(s.fd, &from)
		switch e {
		case 0:
		case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
			w.pauseAccept(s)
			return
		case unix.EAGAIN:
			return
		default:
			// The connection that was at the head has died; the level-
			// triggered event comes again if there are others.
			return
		}
		w.counts.accepted.Add(1)
		s.group.counts[w.id].accepted.Add(1)
		came := arrival{fd: fd, group: s.group, offset: s.offset}
		if s.group.ProxyProtocol != 0 {
			came.from = from.addrPort()
		}
		to := w.lightest(connectionsOf, connectionSlack)
		to.connected(s.group, 1)
		if to == w {
			w.begin(came)
		} else {
			to.post(letter{from: came})
		}
	}
}

// pauseAccept stops a level-triggered listener from waking us for ever while
// there is no descriptor (or memory) for its clients, who wait in the backlog
// meanwhile.
func (w *worker) pauseAccept(s *socket) {
	if w.control(unix.EPOLL_CTL_MOD, s.fd, 0, s.slot, 0) == 0 {
		w.starve = append(w.starve, s)
		w.retryAt = w.now() + retryAfter
	}
}

// retryAccept wakes the paused listeners.
func (w *worker) retryAccept() {
	for _, s := range w.starve {
		_ = w.control(unix.EPOLL_CTL_MOD, s.fd, unix.EPOLLIN, s.slot, 0)
	}
	w.starve = w.starve[:0]
}
