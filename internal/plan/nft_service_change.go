package plan

import (
	"net/netip"
	"time"

	"fairlead/internal/model"
)

// ServiceEntry is an element of a map or set of the table of services.
type ServiceEntry struct {
	// Map is the name of the map or set without the family's suffix: MapServices,
	// MapSourceNAT, MapPersistent, SetFrontends, or the map of the service's
	// buckets.
	Map string
	// Proto and At are the frontend, which is the key. They are not valid for a
	// bucket.
	Proto model.Proto
	At    netip.AddrPort
	// Bucket is the key if the element is a bucket.
	Bucket int
	// Real is the bucket's real server. If At is valid, Real is the rest of the key
	// (MapSourceNAT, MapPersistent).
	Real netip.AddrPort
	// Masquerade is true if the real server sees the host as the client.
	Masquerade bool
}

// ServiceChange changes a service from one state to another.
type ServiceChange struct {
	// New is true if the service's chain does not exist yet.
	New bool
	// Rules is true if the chain's rules are rewritten. The map of its buckets is
	// then recreated too, if the new state has one.
	Rules bool
	// Drop lists the service's maps that are deleted first.
	Drop []string
	// Clients is true if the chain that records clients and the map of clients are
	// created. NoKeep is true if that chain is deleted.
	Clients, NoKeep bool
	// Unbind is true if the map of clients may name real servers that get no new
	// flows any more. These clients must be deleted from the map.
	Unbind   bool
	Del, Add []ServiceEntry
}

// From returns the change from an old state. If old is nil, the service is new.
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
		if len(old.Ring) > 0 {
			c.Drop = append(c.Drop, old.Reals())
		}
	}
	c.remember(*old, s)
	if !same(s.Frontends, old.Frontends) || !same(s.Backends, old.Backends) || s.Remembers() != old.Remembers() {
		c.swap(old.Entries(), s.Entries())
	}
	return c
}

// Removal returns the change that leaves only an empty chain.
func (s NFTService) Removal() ServiceChange {
	c := ServiceChange{Rules: true, Del: s.Entries()}
	if len(s.Ring) > 0 {
		c.Drop = append(c.Drop, s.Reals())
	}
	c.remember(s, NFTService{})
	return c
}

// remember sets what happens to the chain and the map of clients.
func (c *ServiceChange) remember(old, s NFTService) {
	kept := old.Remembers() && s.Remembers() && old.values() == s.values()
	c.Clients, c.NoKeep = s.Remembers() && !kept, old.Remembers() && !s.Remembers()
	if old.Remembers() && !kept {
		c.Drop = append(c.Drop, old.Clients())
	}
	if kept {
		c.Unbind = len(old.Leaving(s)) > 0
	}
}

// Targets returns the real servers that get new flows.
func (s NFTService) Targets() map[netip.AddrPort]bool {
	all := map[netip.AddrPort]bool{}
	for _, b := range s.Backends {
		if !b.Draining && b.Weight > 0 {
			all[b.At] = true
		}
	}
	return all
}

// Leaving returns the targets that are not targets of next, in their order.
func (s NFTService) Leaving(next NFTService) []netip.AddrPort {
	mine, those := s.Targets(), next.Targets()
	var all []netip.AddrPort
	for _, b := range s.Backends {
		if mine[b.At] && !those[b.At] {
			all = append(all, b.At)
		}
	}
	return all
}

// swap deletes the elements that are not wanted any more and adds the new ones.
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

// differ replaces the buckets whose real server changed. Both lists have the same
// length.
func (c *ServiceChange) differ(old, wanted []ServiceEntry) {
	for i, e := range wanted {
		if e != old[i] {
			c.Del, c.Add = append(c.Del, old[i]), append(c.Add, e)
		}
	}
}

// shape has the properties of a service that determine the rules of its chain.
type shape struct {
	service     string
	proto       model.Proto
	scheduler   model.Scheduler
	persistence time.Duration
	damaged     bool
	buckets     int
	values      valueKind
}

func (s NFTService) shape() shape {
	return shape{s.Service, s.Proto, s.Scheduler, s.Persistence, s.Damaged, len(s.Ring), s.values()}
}

// valueKind is the type of the values of a service's maps, and the port that is in
// a rule because the maps do not contain it.
type valueKind struct {
	v4, withPort bool
	port         uint16
}

// values returns the type of the values of the service's maps. It is the same for
// all services without buckets, which have no maps.
func (s NFTService) values() valueKind {
	switch {
	case len(s.Ring) == 0:
		return valueKind{}
	case s.KeepsPort():
		return valueKind{v4: s.Is4()}
	case s.Remembers() && !s.clientsHavePort():
		return valueKind{v4: s.Is4(), withPort: true, port: s.anyPort()}
	}
	return valueKind{v4: s.Is4(), withPort: true}
}

// Buckets returns the elements of the map of buckets.
func (s NFTService) Buckets() []ServiceEntry {
	backends, name := s.Backends, s.Reals()
	all := make([]ServiceEntry, len(s.Ring))
	for i := range all {
		all[i] = ServiceEntry{Map: name, Bucket: i, Real: backends[s.Ring[i]].At}
	}
	return all
}

// Entries returns the service's elements in the maps and the set that services
// share.
func (s NFTService) Entries() []ServiceEntry {
	backends, targets := s.Backends, map[netip.AddrPort]bool{}
	if s.Remembers() {
		targets = s.Targets()
	}
	var all []ServiceEntry
	for _, at := range s.Frontends {
		all = append(all, ServiceEntry{Map: MapServices, Proto: s.Proto, At: at},
			ServiceEntry{Map: SetFrontends, Proto: s.Proto, At: at})
		for _, b := range backends {
			real := b.At
			if real.Port() == 0 {
				real = netip.AddrPortFrom(real.Addr(), at.Port())
			}
			if real.Addr().Is4() != at.Addr().Is4() {
				continue
			}
			all = append(all, ServiceEntry{Map: MapSourceNAT, Proto: s.Proto, At: at, Real: real,
				Masquerade: b.Masquerade})
			if targets[b.At] {
				all = append(all, ServiceEntry{Map: MapPersistent, Proto: s.Proto, At: at, Real: real})
			}
		}
	}
	return all
}
