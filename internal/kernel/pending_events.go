package kernel

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/plan"
)

// PendingEvents are what was noted of the kernel's changes: the last state of each
// thing that a message was about. The zero value is that nothing was.
type PendingEvents struct {
	// all says that messages were lost, so that anything may have changed.
	all       bool
	links     map[linkID]*linkState
	addresses map[addressAt]bool
	routes    map[routeAt][]routeState
	qdiscs    map[qdiscAt]qdiscState
	neighbors map[neighborAt]neighborState
	// tables are those of ours that another has changed; author is who.
	tables map[string]bool
	author string
	// bpf says that a program of ours is not attached, or not pinned, and leads
	// that the eBPF table is not as we have left it.
	bpf, mappings bool
	// ipvs says that a virtual service, or a local route, is not as we have left it.
	ipvs bool
	// firewall says that a filter table of iptables has changed.
	firewall bool
	// multipath says that a multipath route of the host has come, changed or gone,
	// in any table.
	multipath bool
	// settings are the sysctls that have another value.
	settings map[string]bool
}

// The places of things are those of the namespace (by its id) and the link (by
// its name; empty where it is not known).
type (
	addressAt struct {
		namespace int
		link      string
		prefix    netip.Prefix
	}
	routeAt struct {
		namespace int
		to        netip.Prefix
	}
	qdiscAt struct {
		namespace int
		link      string
	}
)

// neighborAt is the place of an entry: of a neighbour by its address, of a
// forwarding table by the hardware address, and by both where that stands for
// all that are unknown.
type neighborAt struct {
	link, mac string
	addr      netip.Addr
}

type neighborState struct {
	mac  string
	addr netip.Addr
	gone bool
}

type routeState struct {
	link string
	via  netip.Addr
	// foreign says that the entry is not of our protocol, replaces that it may
	// have taken the place of another.
	foreign, gone, replaces bool
}

type qdiscState struct {
	handle uint32
	// rate is that of a token bucket in bytes a second.
	rate uint64
	gone bool
}

func (s *PendingEvents) empty() bool {
	return !s.all && len(s.links) == 0 && len(s.addresses) == 0 && len(s.routes) == 0 && len(s.qdiscs) == 0 &&
		len(s.neighbors) == 0 && len(s.tables) == 0 && !s.bpf && !s.mappings && !s.ipvs && !s.firewall && !s.multipath && len(s.settings) == 0
}

// put sets a key of a map that may not be there yet.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = value
}

func (s *PendingEvents) noteLink(id linkID, now *linkState) {
	if before := s.links[id]; before != nil && before.needsCheck {
		now.needsCheck = true
	}
	put(&s.links, id, now)
}

func (s *PendingEvents) noteAddress(at addressAt, gone bool) { put(&s.addresses, at, gone) }

// noteRoute keeps what is told of one destination, link by link.
func (s *PendingEvents) noteRoute(at routeAt, now routeState) {
	kept := slices.DeleteFunc(s.routes[at], func(r routeState) bool { return r.link == now.link && r.foreign == now.foreign })
	put(&s.routes, at, append(kept, now))
}

func (s *PendingEvents) noteQdisc(at qdiscAt, now qdiscState)          { put(&s.qdiscs, at, now) }
func (s *PendingEvents) noteNeighbor(at neighborAt, now neighborState) { put(&s.neighbors, at, now) }
func (s *PendingEvents) noteTable(name string)                         { put(&s.tables, name, true) }

// noteAuthor notes whose the changes of tables were that were noted before.
func (s *PendingEvents) noteAuthor(who string) {
	if len(s.tables) > 0 {
		s.author = who
	}
}

// All reports whether anything may have changed.
func (s PendingEvents) All() bool { return s.all }

// Empty reports whether nothing was noted.
func (s PendingEvents) Empty() bool { return s.empty() }

// Author is who has changed the nft tables, as far as the kernel tells.
func (s PendingEvents) Author() string { return s.author }

// Detached reports whether an eBPF program of ours was detached, or its pin
// removed.
func (s PendingEvents) Detached() bool { return s.bpf }

// HostChanged reports whether a link that is not ours, an address or a route of
// the host has changed: what plans are made from may be otherwise.
func (s PendingEvents) HostChanged() bool {
	for id, l := range s.links {
		if id.namespace == NoSandbox && !strings.HasPrefix(l.alias, plan.Mark+":") {
			return true
		}
	}
	for at := range s.routes {
		if at.namespace == NoSandbox {
			return true
		}
	}
	return s.AddressesChanged()
}

// FirewallChanged reports whether a filter table of iptables may have changed.
func (s PendingEvents) FirewallChanged() bool { return s.firewall || s.all }

// AddressesChanged reports whether the host has got or lost an address.
func (s PendingEvents) AddressesChanged() bool {
	for at := range s.addresses {
		if at.namespace == NoSandbox {
			return true
		}
	}
	return s.all
}

// Concerned returns the objects of a plan that may not be any more as they are
// in it; id returns what the host calls the namespace at a path. With an object
// comes what stands on the same link, as that may have gone without a message.
func (s PendingEvents) Concerned(p plan.Plan, id func(netns string) int) plan.Plan {
	m := matcher{PendingEvents: s, id: id, byName: s.linksByName()}
	concerned := make(map[int]bool)
	shaken := map[string]bool{}
	for i, o := range p {
		if !m.concerns(o) {
			continue
		}
		concerned[i] = true
		for _, end := range plan.Ends(o) {
			shaken[end] = true
		}
		if _, is := o.(plan.Address); is {
			shaken[plan.Base(o)] = true // routes go with it, and IPv6 may be off
		}
	}
	if len(concerned) == 0 {
		return nil
	}
	for i, o := range p {
		if base := plan.Base(o); base != "" && shaken[base] {
			concerned[i] = true
		}
		if len(shaken) > 0 && slices.ContainsFunc(plan.Ends(o), func(end string) bool { return shaken[end] }) {
			concerned[i] = true
		}
	}
	var found plan.Plan
	for _, i := range slices.Sorted(maps.Keys(concerned)) {
		found = append(found, p[i])
	}
	return found
}

// LeftOver reports whether the host has a link with our mark that is not in the
// plan: one that somebody has renamed, or made.
func (s PendingEvents) LeftOver(p plan.Plan) bool {
	names := map[string]bool{}
	for id, l := range s.links {
		if id.namespace == NoSandbox && !l.gone && strings.HasPrefix(l.alias, plan.Mark+":") {
			names[l.name] = true
		}
	}
	if len(names) == 0 {
		return false
	}
	for _, o := range p {
		for _, end := range plan.Ends(o) {
			delete(names, strings.TrimPrefix(end, " "))
		}
	}
	return len(names) > 0
}

// linksByName finds the links by namespace and name: the one that is there,
// before one that has gone.
func (s PendingEvents) linksByName() map[qdiscAt]*linkState {
	found := make(map[qdiscAt]*linkState, len(s.links))
	for id, l := range s.links {
		at := qdiscAt{id.namespace, l.name}
		if have := found[at]; have == nil || have.gone {
			found[at] = l
		}
	}
	return found
}
