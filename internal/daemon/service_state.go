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

// services is the daemon's state of virtual services besides the desired state.
type services struct {
	// pools are the pools that the data planes have, by the services' names.
	pools map[string]*pool
	// drains are the drains of members.
	drains map[realKey]*Drain
	// containers has the attached containers by the references of their attachments.
	containers map[string]Container
	// dirty has the services whose pools must be computed again.
	dirty map[string]bool
	// woken receives a value when balance has something to do.
	woken chan struct{}
	// counts are the counters of the data planes, read at countedAt.
	counts    RealCounts
	countedAt time.Time
	// observed receives a value when observe must check for passive checks again.
	observed chan struct{}
	// stuck says why the data planes still have an earlier state of a service.
	stuck map[string]string
	// transitions counts how often the checks have taken a member out or brought it
	// back.
	transitions map[realKey]uint64
	// unsaved says that the checks have results that are not saved.
	unsaved bool
	// savedHealth are the results of the checks that an earlier process has saved.
	savedHealth health.Snapshot
	// needed is closed by needOnce when there is a service.
	needed   chan struct{}
	needOnce *sync.Once
	// batches are results of the checks that are not applied yet. batchMu protects
	// them, so that the checks never wait while something is applied.
	batchMu sync.Mutex
	batches []health.Batch
}

// realKey identifies a real server of a service.
type realKey struct {
	service string
	at      netip.AddrPort
}

func newServices() services {
	return services{transitions: map[realKey]uint64{}, needed: make(chan struct{}), needOnce: new(sync.Once),
		pools: map[string]*pool{}, drains: map[realKey]*Drain{}, containers: map[string]Container{},
		dirty: map[string]bool{}, stuck: map[string]string{}, woken: make(chan struct{}, 1), observed: make(chan struct{}, 1)}
}

// markDirty makes balance compute the services' pools again.
func (s *services) markDirty(names ...string) {
	for _, name := range names {
		s.dirty[name] = true
	}
	s.wake()
}

// wake wakes balance.
func (s *services) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// observeAgain wakes observe.
func (s *services) observeAgain() {
	select {
	case s.observed <- struct{}{}:
	default:
	}
}

// poolsOf computes the pools of a desired state, with the endpoints of a state. If
// only is not nil, it computes only these and takes the others from the current pools.
func (d *Daemon) poolsOf(w model.Desired, endpoints []model.Endpoint, only map[string]bool) map[string]*pool {
	all := make(map[string]*pool, len(w.Services))
	var inputs func(string) poolInputs
	for _, v := range w.Services {
		if d.problems[serviceProblem(v.Name)] != "" {
			continue
		}
		before := d.services.pools[v.Name]
		if only != nil && before != nil && !before.restored && !only[v.Name] {
			all[v.Name] = before
			continue
		}
		if inputs == nil {
			inputs = d.inputs(w, endpoints)
		}
		all[v.Name] = newPool(v, before, inputs(v.Name))
	}
	return all
}

// serviceProblem returns the key of a service's problem.
func serviceProblem(name string) string { return "service " + name }

// inputs returns the inputs of the computation of pools.
func (d *Daemon) inputs(w model.Desired, endpoints []model.Endpoint) func(service string) poolInputs {
	s := d.sandboxes(w, endpoints)
	now := time.Now()
	return func(service string) poolInputs {
		return poolInputs{now: now, selects: s.selects, owns: s.owns, alive: s.alive,
			drain: func(at netip.AddrPort) *Drain { return d.services.drains[realKey{service, at}] },
		}
	}
}

// sandboxes are the attached sandboxes, which can be real servers.
type sandboxes struct {
	all    []attachedSandbox
	byAddr map[netip.Addr]int
	byName map[string]bool
}

// attachedSandbox is an attachment with its addresses and its container.
type attachedSandbox struct {
	model.Attachment
	addrs     []netip.Addr
	container Container
}

// sandboxes returns the attachments that are applied, sorted by name.
func (d *Daemon) sandboxes(w model.Desired, endpoints []model.Endpoint) sandboxes {
	s := sandboxes{byAddr: map[netip.Addr]int{}, byName: map[string]bool{}}
	leased := make(map[string][]netip.Addr, len(endpoints))
	for _, e := range d.full.Endpoints {
		leased[e.Name] = e.AllAddresses()
	}
	for _, e := range endpoints {
		s.byName[e.Name] = true
		if addrs := e.AllAddresses(); len(addrs) > 0 && len(leased[e.Name]) == 0 {
			leased[e.Name] = addrs
		}
	}
	for _, a := range w.Attachments {
		if s.byName[a.Name] {
			s.all = append(s.all, attachedSandbox{a, leased[a.Name], d.services.containers[a.Ref]})
		}
	}
	slices.SortFunc(s.all, func(a, b attachedSandbox) int { return strings.Compare(a.Name, b.Name) })
	for i, b := range s.all {
		for _, addr := range b.addrs {
			s.byAddr[addr] = i
		}
	}
	return s
}

func (s sandboxes) alive(endpoint string) bool { return s.byName[endpoint] }

func (s sandboxes) owns(addr netip.Addr) (found, bool) {
	i, known := s.byAddr[addr]
	if !known {
		return found{}, false
	}
	return s.all[i].found(addr), true
}

func (b attachedSandbox) found(addr netip.Addr) found {
	return found{b.Name, addr, b.container.leaves(), b.container.RunsOn}
}

// selects returns what a selector finds, one attachment of each sandbox.
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

// fits reports whether the sandbox matches all parts of the selector.
func (b attachedSandbox) fits(by model.Select) bool {
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
	ok, _ := path.Match(pattern, name) // the pattern is valid
	return ok && name != ""
}
