package proxy

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// acceptBatch limits the connections accepted from one listener per wake-up.
const acceptBatch = 16

// arrival is an accepted connection on its way to its worker.
type arrival struct {
	fd     int
	from   netip.AddrPort
	group  *group
	offset uint16
}

// accept accepts connections. If the worker has many more than another, it passes
// them to that worker.
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
			// The first connection of the queue has failed. The level-triggered
			// event comes again if there are others.
			return
		}
		w.counts.accepted.Add(1)
		s.group.counts[w.id].accepted.Add(1)
		came := arrival{fd: fd, group: s.group, offset: s.offset}
		if s.group.ProxyProtocol != 0 {
			came.from = from.addrPort()
		}
		to := w.workerForClient()
		to.connected(s.group, 1)
		if to == w {
			w.begin(came)
		} else {
			to.post(letter{from: came})
		}
	}
}

// pauseAccept stops the events of a level-triggered listener while there is no
// free descriptor (or memory) for its clients. They wait in the backlog.
func (w *worker) pauseAccept(s *socket) {
	if w.control(unix.EPOLL_CTL_MOD, s.fd, 0, s.slot, 0) == 0 {
		w.paused = append(w.paused, s)
		w.retryAt = w.now() + retryAfter
	}
}

// retryAccept enables the events of the paused listeners again.
func (w *worker) retryAccept() {
	for _, s := range w.paused {
		_ = w.control(unix.EPOLL_CTL_MOD, s.fd, unix.EPOLLIN, s.slot, 0)
	}
	w.paused = w.paused[:0]
}
