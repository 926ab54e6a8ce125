package proxy

import (
	"errors"

	"golang.org/x/sys/unix"

	"fairlead/internal/model"
)

// change lists what a commit does to one worker's sockets.
type change struct {
	retire  []*socket         // close
	reserve []*socket         // turn into a reservation
	move    map[*socket]place // give another target
	admit   []*socket         // begin to serve
}

// commit applies the new configuration, whose sockets are all bound. If a socket
// cannot listen, because another process took the port meanwhile, commit does
// the rest and then returns the error.
func (r *registry) commit(cfg Config, want wanted, opened map[socketKey]*socket) error {
	changes, listen := r.changes(want, opened)
	r.workers[0].bound.Store(&want)
	r.onOwners(changes, (*worker).withdraw)
	err := r.listenAll(listen)
	dead := r.deadGroups(want)
	if len(dead) > 0 {
		everywhere(r.workers, func(w *worker) { w.end(dead) })
	}
	r.onOwners(changes, (*worker).admit)
	r.groups, r.config = want.groups, cfg
	return err
}

// changes updates the table of sockets. It returns the changes of each worker,
// and the sockets that do not let clients in yet.
func (r *registry) changes(want wanted, opened map[socketKey]*socket) (map[*worker]*change, map[socketKey]*socket) {
	changes := map[*worker]*change{}
	listen := map[socketKey]*socket{}
	for key, s := range r.sockets {
		at, ok := want.places[key]
		switch {
		case !ok:
			delete(r.sockets, key)
			r.leave(changes, s)
		case at.group == s.group:
		case s.group == nil:
			s.group, s.offset = at.group, at.offset
			listen[key] = s
			r.enter(changes, s)
		case at.group == nil:
			r.of(changes, s.owner).reserve = append(r.of(changes, s.owner).reserve, s)
		default:
			r.of(changes, s.owner).move[s] = at
		}
	}
	for key, s := range opened {
		r.sockets[key] = s
		if s.group != nil {
			r.enter(changes, s)
			if !s.open {
				listen[key] = s
			}
		}
	}
	return changes, listen
}

func (r *registry) of(changes map[*worker]*change, w *worker) *change {
	if changes[w] == nil {
		changes[w] = &change{move: map[*socket]place{}}
	}
	return changes[w]
}

// enter gives a listening socket to the next worker.
func (r *registry) enter(changes map[*worker]*change, s *socket) {
	clients := r.workers[0].clients
	s.owner = clients[r.next%len(clients)]
	r.next++
	r.of(changes, s.owner).admit = append(r.of(changes, s.owner).admit, s)
}

// leave removes a socket from its worker. A reservation has no worker.
func (r *registry) leave(changes map[*worker]*change, s *socket) {
	if s.owner == nil {
		closeFD(s.fd)
		return
	}
	c := r.of(changes, s.owner)
	c.retire = append(c.retire, s)
}

// onOwners runs a step on the workers that have changes, and waits.
func (r *registry) onOwners(changes map[*worker]*change, step func(*worker, *change)) {
	var owners []*worker
	for w := range changes {
		owners = append(owners, w)
	}
	everywhere(owners, func(w *worker) { step(w, changes[w]) })
}

// deadGroups returns the groups that are no longer wanted, marked as ended.
func (r *registry) deadGroups(want wanted) map[*group]bool {
	dead := map[*group]bool{}
	for l, g := range r.groups {
		if want.groups[l] != g {
			dead[g] = true
			g.ended.Store(true)
		}
	}
	return dead
}

// listenAll makes sockets listen. If a wildcard reservation covers a socket, the
// reservation needs SO_REUSEADDR during the call.
func (r *registry) listenAll(sockets map[socketKey]*socket) error {
	var errs []error
	for key, s := range sockets {
		if key.proto == model.TCP {
			_ = setReuse(s.fd, 1)
			r.reuseAbove(key, 1)
		}
		if err := s.listen(); err != nil {
			errs = append(errs, key.fail(err))
		}
		if key.proto == model.TCP {
			r.reuseAbove(key, 0)
		}
	}
	return errors.Join(errs...)
}

// reuseAbove sets SO_REUSEADDR on the reservations that cover a key.
func (r *registry) reuseAbove(key socketKey, on int) {
	for _, wide := range key.wildcards() {
		if s := r.sockets[wide]; s != nil {
			_ = setReuse(s.fd, on)
		}
	}
}

// listen lets clients in.
func (s *socket) listen() error {
	s.open = true
	if s.group.Proto == model.UDP {
		return enlargeQueue(s.fd)
	}
	for _, o := range streamOptions {
		_ = setOption(s.fd, o.level, o.name, o.value)
	}
	// The kernel lowers it to net.core.somaxconn.
	const backlog = 1 << 16
	return unix.Listen(s.fd, backlog)
}

// withdraw is the first half of a commit: it closes sockets, turns listeners
// into reservations and changes targets.
func (w *worker) withdraw(c *change) {
	for _, s := range c.retire {
		w.unwatch(s)
		closeFD(s.fd)
	}
	for _, s := range c.reserve {
		w.unwatch(s)
		s.toReservation()
	}
	for s, at := range c.move {
		s.group, s.offset = at.group, at.offset
	}
}

// unwatch stops serving a listening socket.
func (w *worker) unwatch(s *socket) {
	_ = w.control(unix.EPOLL_CTL_DEL, s.fd, 0, s.slot, 0)
	w.slots.remove(s.slot)
	for i, paused := range w.paused {
		if paused == s {
			w.paused = append(w.paused[:i], w.paused[i+1:]...)
			return
		}
	}
}

// toReservation turns a listening socket into a reservation.
func (s *socket) toReservation() {
	if s.group.Proto == model.UDP {
		_ = limitQueue(s.fd)
	} else {
		_ = stopListening(s.fd)
	}
	s.group, s.owner, s.open = nil, nil, false
}

// end ends the connections and flows of removed groups.
func (w *worker) end(dead map[*group]bool) {
	for i := range w.slots.table {
		switch h := w.slots.table[i].handler.(type) {
		case *conn:
			if dead[h.group] {
				h.abort(w)
			}
		case *flow:
			if dead[h.group] {
				w.flows.drop(w, h)
			}
		}
	}
}

// admit is the second half of a commit: it starts to serve the new listeners.
func (w *worker) admit(c *change) {
	for _, s := range c.admit {
		s.slot = w.slots.add(s)
		_ = w.watch(s.fd, unix.EPOLLIN, s.slot, 0)
	}
}
