package proxy

import (
	"slices"

	"golang.org/x/sys/unix"

	"fairlead/internal/model"
)

// opening is the state of one registry.open.
type opening struct {
	registry *registry
	want     wanted
	opened   map[socketKey]*socket
	holders  holders
	// covered lists the sockets from before this Set, by the wildcard that covers
	// them; nil until it is needed.
	covered map[socketKey][]*socket
}

// open binds the wanted sockets that do not exist. On an error it returns those
// that it has opened so far.
func (r *registry) open(want wanted) (map[socketKey]*socket, error) {
	o := opening{registry: r, want: want, opened: make(map[socketKey]*socket, len(want.places))}
	// Wildcards first: if the proxy has bound one, no other process has an
	// address that it covers.
	for _, keys := range [][]socketKey{want.wide, want.narrow} {
		if err := o.openAll(keys); err != nil {
			return o.opened, err
		}
	}
	return o.opened, nil
}

// openAll opens those of the sockets that do not exist.
func (o *opening) openAll(keys []socketKey) error {
	for _, key := range keys {
		if o.registry.sockets[key] != nil {
			continue
		}
		s, err := o.openOne(key)
		if s != nil {
			o.opened[key] = s
		}
		if err != nil {
			return key.fail(err)
		}
	}
	return nil
}

func (o *opening) openOne(key socketKey) (*socket, error) {
	if ours := o.overlapping(key); len(ours) > 0 {
		return o.openOver(key, ours)
	}
	return openAlone(o.want.bind, key, o.want.places[key])
}

// openAlone binds a socket that overlaps none of the proxy's, and makes a TCP
// listener listen. It returns the socket even if binding failed.
func openAlone(bind binder, key socketKey, at place) (*socket, error) {
	s, err := newSocket(key, at)
	if err != nil {
		return nil, err
	}
	if err := bind.bindAlone(s.fd, key, at.group != nil); err != nil {
		return s, err
	}
	if at.group != nil && key.proto == model.TCP {
		return s, s.listen()
	}
	return s, nil
}

// openOver binds a socket that overlaps others of the proxy. A TCP listener does
// not listen yet: the others may have to be closed first.
func (o *opening) openOver(key socketKey, ours []*socket) (*socket, error) {
	if key.wildcard() {
		taken, err := o.holders.usedByOther(key, ours)
		if err != nil {
			return nil, err
		}
		if taken {
			return nil, unix.EADDRINUSE
		}
	}
	s, err := newSocket(key, o.want.places[key])
	if err != nil {
		return nil, err
	}
	return s, o.want.bind.bindOver(s.fd, key, ours)
}

// overlapping returns the proxy's sockets that share addresses with key.
func (o *opening) overlapping(key socketKey) []*socket {
	var ours []*socket
	if key.wildcard() {
		ours = slices.Clone(o.narrower()[key])
	}
	for _, m := range []map[socketKey]*socket{o.opened, o.registry.sockets} {
		for _, wide := range key.wildcards() {
			if s := m[wide]; s != nil {
				ours = append(ours, s)
			}
		}
	}
	return ours
}

// narrower groups the registry's sockets by the wildcards that cover them.
func (o *opening) narrower() map[socketKey][]*socket {
	if o.covered == nil {
		o.covered = map[socketKey][]*socket{}
		for key, s := range o.registry.sockets {
			for _, wide := range key.wildcards() {
				o.covered[wide] = append(o.covered[wide], s)
			}
		}
	}
	return o.covered
}
