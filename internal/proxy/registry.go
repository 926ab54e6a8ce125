package proxy

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"fairlead/internal/plan"
)

// registry contains the bound sockets and applies configurations. Only the
// control loop uses it.
type registry struct {
	workers []*worker
	groups  map[plan.Listener]*group
	sockets map[socketKey]*socket
	config  Config
	next    int // worker for the next listening socket
}

func newRegistry(workers []*worker) *registry {
	return &registry{workers: workers, groups: map[plan.Listener]*group{}, sockets: map[socketKey]*socket{}}
}

// place says what a socket is for; a nil group makes it a reservation.
type place struct {
	group  *group
	offset uint16
}

// wanted is a configuration with one entry per socket.
type wanted struct {
	groups map[plan.Listener]*group
	places map[socketKey]place
	// bind binds the new sockets.
	bind binder
	// wide has the keys with a wildcard address, narrow the others, in the
	// configuration's order.
	wide, narrow []socketKey
}

// set applies cfg. If it fails to bind, it changes nothing.
func (r *registry) set(cfg Config) error {
	want, err := r.resolve(cfg)
	if err != nil {
		return err
	}
	opened, err := r.open(want)
	if err != nil {
		for _, s := range opened {
			closeFD(s.fd)
		}
		return err
	}
	return r.commit(cfg, want, opened)
}

// resolve turns cfg into one entry per socket. Listeners that existed before keep their
// group.
func (r *registry) resolve(cfg Config) (wanted, error) {
	want := wanted{groups: map[plan.Listener]*group{}, places: make(map[socketKey]place, cfg.ports()),
		bind: binder(cfg.BindKey)}
	for _, l := range cfg.Listeners {
		g, err := r.group(l)
		if err != nil {
			return want, err
		}
		want.groups[l] = g
		if err := want.listen(g); err != nil {
			return want, err
		}
	}
	for _, l := range cfg.Listeners {
		if err := want.unique(l); err != nil {
			return want, err
		}
	}
	for _, any := range []bool{true, false} {
		for _, res := range cfg.Reservations {
			if (!res.Host.IsValid() || res.Host.IsUnspecified()) == any {
				want.reserve(res)
			}
		}
	}
	return want, nil
}

// ports counts the ports of a configuration.
func (c Config) ports() int {
	n := 0
	for _, l := range c.Listeners {
		n += l.Ports.Len()
	}
	for _, r := range c.Reservations {
		n += r.Ports.Len()
	}
	return n
}

// group returns the listener's group, or a new one.
func (r *registry) group(l plan.Listener) (*group, error) {
	if g, ok := r.groups[l]; ok {
		return g, nil
	}
	if l.Ports.Len() != l.TargetPorts.Len() {
		return nil, fmt.Errorf("listen on %s %s/%s: %d ports but %d target ports; give ranges of equal length",
			l.Host, l.Ports, l.Proto, l.Ports.Len(), l.TargetPorts.Len())
	}
	target, err := newSockaddr(l.Target, 0)
	if err != nil {
		return nil, err
	}
	return &group{Listener: l, target: target, counts: make([]tally, len(r.workers))}, nil
}

// listen adds a group's sockets.
func (w *wanted) listen(g *group) error {
	for i := range g.Ports.Len() {
		key := socketKey{g.Proto, netip.AddrPortFrom(g.Host, g.Ports.First+uint16(i))}
		if _, ok := w.places[key]; ok {
			return key.fail(unix.EADDRINUSE)
		}
		w.add(key, place{g, uint16(i)})
	}
	return nil
}

// unique fails if two listeners have the same port of the same address.
func (w *wanted) unique(l plan.Listener) error {
	for i := range l.Ports.Len() {
		key := socketKey{l.Proto, netip.AddrPortFrom(l.Host, l.Ports.First+uint16(i))}
		if w.covered(key) {
			return key.fail(unix.EADDRINUSE)
		}
	}
	return nil
}

// reserve adds a reservation's sockets, except those whose address a listener or
// a wildcard reservation covers already.
func (w *wanted) reserve(res plan.Reservation) {
	for i := range res.Ports.Len() {
		key := socketKey{res.Proto, netip.AddrPortFrom(res.Host, res.Ports.First+uint16(i))}
		if _, same := w.places[key]; !same && !w.covered(key) {
			w.add(key, place{})
		}
	}
}

// covered reports whether a wildcard covers the key's address.
func (w *wanted) covered(key socketKey) bool {
	for _, wide := range key.wildcards() {
		if _, ok := w.places[wide]; ok {
			return true
		}
	}
	return false
}

func (w *wanted) add(key socketKey, at place) {
	w.places[key] = at
	if key.wildcard() {
		w.wide = append(w.wide, key)
	} else {
		w.narrow = append(w.narrow, key)
	}
}
