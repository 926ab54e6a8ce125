package watch

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"
)

// PendingEvents are the kernel's changes that were noted since the last check: the
// last state of each object that a message was about. The zero value has none.
type PendingEvents struct {
	// concerns reports whether the events show that an object differs.
	concerns func(*Matcher, plan.Object) bool
	// all says that messages were lost, so that anything may have changed.
	all       bool
	links     map[linkID]*linkState
	addresses map[addressAt]bool
	routes    map[routeAt][]routeState
	qdiscs    map[qdiscAt]qdiscState
	neighbors map[neighborAt]neighborState
	// tables are Fairlead's nft tables that another process has changed; author is
	// that process.
	tables map[string]bool
	author string
	// bpf says that an eBPF program of Fairlead is not attached or not pinned.
	// mappings says that the eBPF table has changed since Fairlead wrote it.
	bpf, mappings bool
	// ipvs says that a virtual service or a local route has changed since Fairlead
	// wrote it.
	ipvs bool
	// firewall says that a filter table of iptables has changed.
	firewall bool
	// multipath says that a multipath route of the host was added, changed or
	// deleted, in any routing table.
	multipath bool
	// policies says that an IPsec policy of the host has changed.
	policies bool
	// settings are the sysctls whose value has changed.
	settings map[string]bool
}

// These keys identify objects by the id of the namespace and the name of the link,
// which is empty if it is unknown.
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

// neighborAt identifies an entry: a neighbour by its address, an entry of a
// forwarding table by its hardware address. The forwarding entry for all unknown
// addresses is identified by both.
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
	// foreign says that the route does not have Fairlead's protocol number, and
	// replaces that it may have replaced another route.
	foreign, gone, replaces bool
}

type qdiscState struct {
	handle uint32
	// rate is that of a token bucket in bytes per second.
	rate uint64
	gone bool
}

func (s *PendingEvents) empty() bool {
	return !s.all && len(s.links) == 0 && len(s.addresses) == 0 && len(s.routes) == 0 && len(s.qdiscs) == 0 &&
		len(s.neighbors) == 0 && len(s.tables) == 0 && !s.bpf && !s.mappings && !s.ipvs && !s.firewall &&
		!s.multipath && !s.policies && len(s.settings) == 0
}

func (s *PendingEvents) noteLink(id linkID, now *linkState) {
	if before := s.links[id]; before != nil && before.needsCheck {
		now.needsCheck = true
	}
	nlutil.Put(&s.links, id, now)
}

func (s *PendingEvents) noteAddress(at addressAt, gone bool) { nlutil.Put(&s.addresses, at, gone) }

// noteRoute keeps the last state of the route to a destination for each link.
func (s *PendingEvents) noteRoute(at routeAt, now routeState) {
	kept := slices.DeleteFunc(s.routes[at],
		func(r routeState) bool { return r.link == now.link && r.foreign == now.foreign })
	nlutil.Put(&s.routes, at, append(kept, now))
}

func (s *PendingEvents) noteQdisc(at qdiscAt, now qdiscState) { nlutil.Put(&s.qdiscs, at, now) }

func (s *PendingEvents) noteNeighbor(at neighborAt, now neighborState) {
	nlutil.Put(&s.neighbors, at, now)
}

func (s *PendingEvents) noteTable(name string) { nlutil.Put(&s.tables, name, true) }

// noteAuthor notes the process that made the changes of tables noted before.
func (s *PendingEvents) noteAuthor(who string) {
	if len(s.tables) > 0 {
		s.author = who
	}
}

// All reports whether anything may have changed.
func (s PendingEvents) All() bool { return s.all }

// Empty reports whether nothing was noted.
func (s PendingEvents) Empty() bool { return s.empty() }

// Author returns the process that has changed the nft tables; empty if the kernel
// did not report it.
func (s PendingEvents) Author() string { return s.author }

// Detached reports whether an eBPF program of Fairlead was detached, or its pin
// removed.
func (s PendingEvents) Detached() bool { return s.bpf }

// HostChanged reports whether one of the host's addresses, routes or links that
// are not Fairlead's has changed. Plans depend on these.
func (s PendingEvents) HostChanged() bool {
	if s.LinksChanged() {
		return true
	}
	for at := range s.routes {
		if at.namespace == netns.NoID {
			return true
		}
	}
	return s.AddressesChanged()
}

// LinksChanged reports whether one of the host's links that are not Fairlead's has changed, or may
// have: it has appeared, or has another name.
func (s PendingEvents) LinksChanged() bool {
	for id, l := range s.links {
		if id.namespace == netns.NoID && !strings.HasPrefix(l.alias, plan.Mark+":") {
			return true
		}
	}
	return s.all
}

// FirewallChanged reports whether a filter table of iptables or an IPsec policy may have
// changed.
func (s PendingEvents) FirewallChanged() bool { return s.firewall || s.policies || s.all }

// PoliciesChanged reports whether an IPsec policy of the host may have changed.
func (s PendingEvents) PoliciesChanged() bool { return s.policies || s.all }

// AddressesChanged reports whether an address of the host was added or removed.
func (s PendingEvents) AddressesChanged() bool {
	for at := range s.addresses {
		if at.namespace == netns.NoID {
			return true
		}
	}
	return s.all
}

// Concerned returns the objects of a plan that may have changed. The function id
// returns the id that the host has for the namespace at a path. With an object it
// returns the other objects on the same link, because the kernel may remove these
// without a message.
func (s PendingEvents) Concerned(p plan.Plan, id func(netns string) int) plan.Plan {
	m := Matcher{PendingEvents: s, id: id, byName: s.linksByName()}
	concerned := make(map[int]bool)
	affected := map[string]bool{}
	for i, o := range p {
		if !s.concerns(&m, o) {
			continue
		}
		concerned[i] = true
		for _, end := range plan.Ends(o) {
			affected[end] = true
		}
		if _, is := o.(plan.Address); is {
			affected[plan.Base(o)] = true // routes are deleted with it, and IPv6 may be off
		}
	}
	if len(concerned) == 0 {
		return nil
	}
	for i, o := range p {
		if plan.DependsOn(o, affected) {
			concerned[i] = true
		}
		if len(affected) > 0 && slices.ContainsFunc(plan.Ends(o), func(end string) bool { return affected[end] }) {
			concerned[i] = true
		}
	}
	var found plan.Plan
	for _, i := range slices.Sorted(maps.Keys(concerned)) {
		found = append(found, p[i])
	}
	return found
}

// LeftOver reports whether the host has a link with Fairlead's mark that is not in
// the plan: another program has renamed or created it.
func (s PendingEvents) LeftOver(p plan.Plan) bool {
	names := map[string]bool{}
	for id, l := range s.links {
		if id.namespace == netns.NoID && !l.gone && strings.HasPrefix(l.alias, plan.Mark+":") {
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

// linksByName returns the links by namespace and name. It prefers an existing link
// to a deleted one with the same name.
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
