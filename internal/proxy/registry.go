package proxy

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// registry holds the bound sockets and turns one configuration into the
// next. Only the control loop uses it.
type registry struct {
	workers []*worker
	groups  map[plan.Listener]*group
	sockets map[socketKey]*socket
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

// wanted is a configuration spelled out socket by socket.
type wanted struct {
	groups map[plan.Listener]*group
	places map[socketKey]place
	// order is the order to bind in: wildcards first, because a wildcard
	// that is ours proves that what it covers is no stranger's.
	order []socketKey
}

// set makes the registry hold cfg, or fails and leaves it as it was.
func (r *registry) set(cfg Config) error {
	want, err := r.spell(cfg)
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
	return r.commit(want, opened)
}

// spell resolves cfg. Listeners that were there before keep their group.
func (r *registry) spell(cfg Config) (wanted, error) {
	want := wanted{groups: map[plan.Listener]*group{}, places: make(map[socketKey]place, cfg.ports())}
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
			if res.Host.IsUnspecified() == any {
				want.reserve(res)
			}
		}
	}
	want.sort()
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

// group returns the listener's group, a new one if it was not there.
func (r *registry) group(l plan.Listener) (*group, error) {
	if g, ok := r.groups[l]; ok {
		return g, nil
	}
	if l.Ports.Len() != l.TargetPorts.Len() {
		return nil, fmt.Errorf("listen on %s %s/%s: its %d ports lead to %d target ports; give ranges of equal length",
			l.Host, l.Ports, l.Proto, l.Ports.Len(), l.TargetPorts.Len())
	}
	target, err := newSockaddr(l.Target, 0)
	if err != nil {
		return nil, err
	}
	return &group{Listener: l, target: target}, nil
}

// listen adds a group's sockets.
func (w *wanted) listen(g *group) error {
	for i := range g.Ports.Len() {
		key := socketKey{g.Proto, netip.AddrPortFrom(g.Host, g.Ports.First+uint16(i))}
		if _, ok := w.places[key]; ok {
			return key.fail(unix.EADDRINUSE)
		}
		w.places[key] = place{g, uint16(i)}
	}
	return nil
}

// unique refuses two listeners for one port of one address.
func (w *wanted) unique(l plan.Listener) error {
	if l.Host.IsUnspecified() {
		return nil
	}
	for i := range l.Ports.Len() {
		key := socketKey{l.Proto, netip.AddrPortFrom(l.Host, l.Ports.First+uint16(i))}
		if _, ok := w.places[key.any()]; ok {
			return key.fail(unix.EADDRINUSE)
		}
	}
	return nil
}

// reserve adds a reservation's sockets, but for those whose address a
// listener or a wildcard reservation holds already.
func (w *wanted) reserve(res plan.Reservation) {
	for i := range res.Ports.Len() {
		key := socketKey{res.Proto, netip.AddrPortFrom(res.Host, res.Ports.First+uint16(i))}
		_, same := w.places[key]
		_, covered := w.places[key.any()]
		if !same && !covered {
			w.places[key] = place{}
		}
	}
}

// sort fills order.
func (w *wanted) sort() {
	w.order = make([]socketKey, 0, len(w.places))
	for _, any := range []bool{true, false} {
		for key := range w.places {
			if key.wildcard() == any {
				w.order = append(w.order, key)
			}
		}
	}
}

// open binds the sockets that are wanted and not there. On an error it
// returns those that it had bound.
func (r *registry) open(want wanted) (map[socketKey]*socket, error) {
	o := opening{registry: r, opened: make(map[socketKey]*socket, len(want.order))}
	for _, key := range want.order {
		if r.sockets[key] != nil {
			continue
		}
		if err := o.open(key, want.places[key]); err != nil {
			return o.opened, err
		}
	}
	return o.opened, nil
}

// opening is the state of one registry.open.
type opening struct {
	registry *registry
	opened   map[socketKey]*socket
	holders  holders
	// narrow lists the sockets before this Set by wildcard; nil until a
	// wildcard is bound.
	narrow map[socketKey][]*socket
}

// open binds one socket. A TCP listener listens at once, unless it overlaps
// ours: then it may have to wait for them to go.
func (o *opening) open(key socketKey, at place) error {
	fd, err := newSocket(key)
	if err != nil {
		return key.fail(err)
	}
	s := &socket{fd: fd, group: at.group, offset: at.offset, open: key.proto == model.UDP}
	o.opened[key] = s
	if key.proto == model.UDP {
		if err := prepareUDP(fd, key, at.group != nil); err != nil {
			return key.fail(err)
		}
	}
	ours := o.overlapping(key)
	if len(ours) > 0 {
		err = o.over(fd, key, ours)
	} else {
		err = bindAlone(fd, key, at.group != nil)
	}
	if err == nil && at.group != nil && key.proto == model.TCP && len(ours) == 0 {
		err = s.listen()
	}
	if err != nil {
		return key.fail(err)
	}
	return nil
}

// over binds around or beneath sockets of ours.
func (o *opening) over(fd int, key socketKey, ours []*socket) error {
	if key.wildcard() {
		taken, err := o.holders.stranger(key, ours)
		if err != nil {
			return err
		}
		if taken {
			return unix.EADDRINUSE
		}
	}
	return bindOver(fd, key, ours)
}

// overlapping returns our sockets that share addresses with key.
func (o *opening) overlapping(key socketKey) []*socket {
	if key.wildcard() {
		return o.narrower()[key]
	}
	for _, m := range []map[socketKey]*socket{o.opened, o.registry.sockets} {
		if s := m[key.any()]; s != nil {
			return []*socket{s}
		}
	}
	return nil
}

// narrower groups the registry's sockets by the wildcard that covers them.
func (o *opening) narrower() map[socketKey][]*socket {
	if o.narrow == nil {
		o.narrow = map[socketKey][]*socket{}
		for key, s := range o.registry.sockets {
			if !key.wildcard() {
				o.narrow[key.any()] = append(o.narrow[key.any()], s)
			}
		}
	}
	return o.narrow
}
