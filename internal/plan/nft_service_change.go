package plan

import (
	"net/netip"

	"fairlead/internal/model"
)

// ServiceEntry is an element of the table of services.
type ServiceEntry struct {
	// Map is the name of the map or set, without the family's suffix: one of
	// MapServices, MapSourceNAT, MapPersistent, SetFrontends, or the map of the service's buckets.
	Map string
	// Proto and At are the frontend, which is the key; not valid for a bucket.
	Proto model.Proto
	At    netip.AddrPort
	// Bucket is the key of a bucket.
	Bucket int
	// Real is the real server that a bucket leads to, or, with At, the rest of an
	// answer's key.
	Real netip.AddrPort
	// Masquerade says that the real server sees the host as the client.
	Masquerade bool
}

// ServiceChange leads from one state of a service to another.
type ServiceChange struct {
	// New says that there is no chain yet.
	New bool
	// Rules says that the chain's rules are made anew, and so is the map of its
	// buckets if there is to be one.
	Rules bool
	// Drop are maps of the service's own that go before.
	Drop []string
	// Clients says that the chain that remembers clients and their map are to be
	// made; NoKeep that the chain goes.
	Clients, NoKeep bool
	// Unbind says that clients may have real servers that get no new flows any
	// more: they have to be forgotten.
	Unbind   bool
	Del, Add []ServiceEntry
}

// From returns the change from an old state, or from nothing if that is nil.
func (s NFTService) From(old *NFTService) ServiceChange {
	if old == nil {
		return ServiceChange{New: true, Rules: true, Clients: s.Remembers(), Add: append(s.Buckets(), s.Entries()...)}
	}
	var c ServiceChange
	c.Rules = s.shape() != old.shape()
	switch {
	case !c.Rules:
		c.differ(old.Buckets(), s.Buckets())
	default:
		c.Add = s.Buckets()
		if old.Ring != "" {
			c.Drop = append(c.Drop, old.Reals())
		}
	}
	c.remember(*old, s)
	if s.Frontends != old.Frontends || s.Backends != old.Backends || s.Remembers() != old.Remembers() {
		c.swap(old.Entries(), s.Entries())
	}
	return c
}

// Removal returns the change that leaves nothing but an empty chain.
func (s NFTService) Removal() ServiceChange {
	c := ServiceChange{Rules: true, Del: s.Entries()}
	if s.Ring != "" {
		c.Drop = append(c.Drop, s.Reals())
	}
	c.remember(s, NFTService{})
	return c
}

// remember says what becomes of the clients that are remembered.
func (c *ServiceChange) remember(old, s NFTService) {
	kept := old.Remembers() && s.Remembers() && kind(old) == kind(s)
	c.Clients, c.NoKeep = s.Remembers() && !kept, old.Remembers() && !s.Remembers()
	if old.Remembers() && !kept {
		c.Drop = append(c.Drop, old.Clients())
	}
	if kept {
		c.Unbind = len(old.Leaving(s)) > 0
	}
}

// Targets are the real servers that get new flows.
func (s NFTService) Targets() map[netip.AddrPort]bool {
	all := map[netip.AddrPort]bool{}
	for _, b := range s.Backends.List() {
		if !b.Draining && b.Weight > 0 {
			all[b.At] = true
		}
	}
	return all
}

// Leaving are the targets, in their order, that are none of next's.
func (s NFTService) Leaving(next NFTService) []netip.AddrPort {
	mine, those := s.Targets(), next.Targets()
	var all []netip.AddrPort
	for _, b := range s.Backends.List() {
		if mine[b.At] && !those[b.At] {
			all = append(all, b.At)
		}
	}
	return all
}

// swap deletes the elements that are not wanted, and adds those that are new.
func (c *ServiceChange) swap(old, wanted []ServiceEntry) {
	was := make(map[ServiceEntry]bool, len(old))
	for _, e := range old {
		was[e] = true
	}
	for _, e := range wanted {
		if !was[e] {
			c.Add = append(c.Add, e)
		}
		delete(was, e)
	}
	for _, e := range old {
		if was[e] {
			c.Del = append(c.Del, e)
		}
	}
}

// differ adds the buckets that have another real server; there are as many.
func (c *ServiceChange) differ(old, wanted []ServiceEntry) {
	for i, e := range wanted {
		if e != old[i] {
			c.Del, c.Add = append(c.Del, old[i]), append(c.Add, e)
		}
	}
}

// shape is what the rules of the service's chain are made of.
func (s NFTService) shape() NFTService {
	var shape NFTService
	shape.Service, shape.Proto, shape.Scheduler, shape.Damaged = s.Service, s.Proto, s.Scheduler, s.Damaged
	shape.Persistence = s.Persistence
	shape.Ring = Ring(make([]byte, len(s.Ring)))
	shape.Backends = kind(s)
	return shape
}

// kind stands for the type of the maps' values, and the port that is not in them.
func kind(s NFTService) Backends {
	if s.Ring == "" {
		return ""
	}
	var port uint16
	switch {
	case s.KeepsPort():
	case s.Remembers() && !s.clientsHavePort():
		port = s.anyPort() // which a rule tells
	default:
		port = 1
	}
	return PackBackends([]Backend{{At: netip.AddrPortFrom(Unspecified(s.Is4()), port)}})
}

// Unspecified returns 0.0.0.0 or ::.
func Unspecified(v4 bool) netip.Addr {
	if v4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// Buckets returns the elements of the map of buckets.
func (s NFTService) Buckets() []ServiceEntry {
	backends, name := s.Backends.List(), s.Reals()
	all := make([]ServiceEntry, s.Ring.Len())
	for i := range all {
		all[i] = ServiceEntry{Map: name, Bucket: i, Real: backends[s.Ring.At(i)].At}
	}
	return all
}

// Entries returns the service's elements of the maps that services share.
func (s NFTService) Entries() []ServiceEntry {
	backends, targets := s.Backends.List(), map[netip.AddrPort]bool{}
	if s.Remembers() {
		targets = s.Targets()
	}
	var all []ServiceEntry
	for _, at := range s.Frontends.List() {
		all = append(all, ServiceEntry{Map: MapServices, Proto: s.Proto, At: at}, ServiceEntry{Map: SetFrontends, Proto: s.Proto, At: at})
		for _, b := range backends {
			real := b.At
			if real.Port() == 0 {
				real = netip.AddrPortFrom(real.Addr(), at.Port())
			}
			if real.Addr().Is4() != at.Addr().Is4() {
				continue
			}
			all = append(all, ServiceEntry{Map: MapSourceNAT, Proto: s.Proto, At: at, Real: real, Masquerade: b.Masquerade})
			if targets[b.At] {
				all = append(all, ServiceEntry{Map: MapPersistent, Proto: s.Proto, At: at, Real: real})
			}
		}
	}
	return all
}
