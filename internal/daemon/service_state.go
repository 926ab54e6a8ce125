package daemon

import (
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead/internal/health"
	"fairlead/internal/model"
)

// services is what the daemon knows of virtual services besides the wishes.
type services struct {
	// pools are what the planes have, by the services' names.
	pools map[string]*pool
	// drains are those of members.
	drains map[realKey]*Drain
	// containers are known by the references of attachments.
	containers map[string]Container
	// dirty are the services of which something is otherwise than in their pools.
	dirty map[string]bool
	// woken has an element when any is.
	woken chan struct{}
	// counts are what the planes said when they were asked last, at countedAt.
	counts    RealCounts
	countedAt time.Time
	// observed has an element when clients' connections are to be looked at.
	observed chan struct{}
	// stuck says why the planes still have a service as it was before something
	// changed about its real servers.
	stuck map[string]string
	// transitions counts how often the checks have taken a member out or brought
	// it back.
	transitions map[realKey]uint64
	// unsaved says that the checks know more than was noted.
	unsaved bool
	// noted is what a process before has noted of the checks.
	noted health.Snapshot
	// wanted is closed when there is a service, by want.
	wanted chan struct{}
	want   *sync.Once
	// told is what the checks have told, and telling is held for it: they must
	// not wait while something is applied.
	telling sync.Mutex
	batches []health.Batch
}

// realKey is a real server of a service.
type realKey struct {
	service string
	at      netip.AddrPort
}

func newServices() services {
	return services{transitions: map[realKey]uint64{}, wanted: make(chan struct{}), want: new(sync.Once),
		pools: map[string]*pool{}, drains: map[realKey]*Drain{}, containers: map[string]Container{},
		dirty: map[string]bool{}, stuck: map[string]string{}, woken: make(chan struct{}, 1), observed: make(chan struct{}, 1)}
}

// markDirty notes that a service's pool is to be worked out again, soon.
func (s *services) markDirty(names ...string) {
	for _, name := range names {
		s.dirty[name] = true
	}
	s.wake()
}

// wake wakes who balances.
func (s *services) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// observeAgain has clients' connections looked at.
func (s *services) observeAgain() {
	select {
	case s.observed <- struct{}{}:
	default:
	}
}

// poolsOf works out the pools of wishes, where the endpoints are those of a
// state; those of only, or all for nil.
func (d *Daemon) poolsOf(w model.Desired, endpoints []model.Endpoint, only map[string]bool) map[string]*pool {
	all := make(map[string]*pool, len(w.Services))
	var around func(string) inputsOf
	for _, v := range w.Services {
		if d.problems[serviceProblem(v.Name)] != "" {
			continue
		}
		before := d.services.pools[v.Name]
		if only != nil && before != nil && !before.restored && !only[v.Name] {
			all[v.Name] = before
			continue
		}
		if around == nil {
			around = d.inputs(w, endpoints)
		}
		all[v.Name] = work(v, before, around(v.Name))
	}
	return all
}

// serviceProblem is the name of a service's problem.
func serviceProblem(name string) string { return "service " + name }

// inputs is what pools are worked out from.
func (d *Daemon) inputs(w model.Desired, endpoints []model.Endpoint) func(service string) inputsOf {
	s := d.sandboxes(w, endpoints)
	now := time.Now()
	return func(service string) inputsOf {
		return inputsOf{now: now, selects: s.selects, owns: s.owns, alive: s.alive,
			drain: func(at netip.AddrPort) *Drain { return d.services.drains[realKey{service, at}] },
		}
	}
}

// sandboxes are those that can be real servers.
type sandboxes struct {
	all    []boxed
	byAddr map[netip.Addr]int
	byName map[string]bool
}

// boxed is an attachment with its addresses.
type boxed struct {
	model.Attachment
	addrs     []netip.Addr
	container Container
}

// sandboxes returns the attachments that are there, by name.
func (d *Daemon) sandboxes(w model.Desired, endpoints []model.Endpoint) sandboxes {
	s := sandboxes{byAddr: map[netip.Addr]int{}, byName: map[string]bool{}}
	leased := make(map[string][]netip.Addr, len(endpoints))
	for _, e := range d.full.Endpoints {
		leased[e.Name] = e.AllAddresses()
	}
	for _, e := range endpoints {
		s.byName[e.Name] = true
		if own := e.AllAddresses(); len(own) > 0 && len(leased[e.Name]) == 0 {
			leased[e.Name] = own
		}
	}
	for _, a := range w.Attachments {
		if s.byName[a.Name] {
			s.all = append(s.all, boxed{a, leased[a.Name], d.services.containers[a.Ref]})
		}
	}
	slices.SortFunc(s.all, func(a, b boxed) int { return strings.Compare(a.Name, b.Name) })
	for i, b := range s.all {
		for _, addr := range b.addrs {
			s.byAddr[addr] = i
		}
	}
	return s
}

func (s sandboxes) alive(endpoint string) bool { return s.byName[endpoint] }

func (s sandboxes) owns(addr netip.Addr) (found, bool) {
	i, ours := s.byAddr[addr]
	if !ours {
		return found{}, false
	}
	return s.all[i].found(addr), true
}

func (b boxed) found(addr netip.Addr) found {
	return found{b.Name, addr, b.container.leaves(), b.container.RunsOn}
}

// selects returns what a selector finds, one of each sandbox.
func (s sandboxes) selects(by model.Select, v4 bool) []found {
	var all []found
	taken := map[string]bool{}
	for _, b := range s.all {
		i := slices.IndexFunc(b.addrs, func(a netip.Addr) bool { return a.Is4() == v4 })
		if i < 0 || taken[b.Ref] || !b.fits(by) {
			continue
		}
		taken[b.Ref] = true
		all = append(all, b.found(b.addrs[i]))
	}
	return all
}

// fits reports whether all that is asked for is so.
func (b boxed) fits(by model.Select) bool {
	if by.Network != "" && by.Network != b.Network {
		return false
	}
	if by.Name != "" && !matches(by.Name, b.Name) && !matches(by.Name, b.container.Name) {
		_, name, _ := strings.Cut(b.Ref, ":")
		if !matches(by.Name, name) {
			return false
		}
	}
	if by.Label == "" {
		return true
	}
	key, value, valued := strings.Cut(by.Label, "=")
	have, there := b.container.Labels[key]
	return there && (!valued || have == value)
}

func matches(pattern, name string) bool {
	ok, _ := path.Match(pattern, name) // it was validated
	return ok && name != ""
}
