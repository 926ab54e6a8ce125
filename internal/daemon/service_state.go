package daemon

import (
	"net/netip"
	"sync"
	"time"

	"fairlead/internal/daemon/pool"
	"fairlead/internal/health"
	"fairlead/internal/model"
)

// services computes and applies the pools of virtual services.
type services struct {
	*state
	networks *networks
	// health checks real servers. It needs no lock.
	health *health.Monitor
	// pools are the pools that the data planes have, by the services' names.
	pools map[string]*pool.Pool
	// drains are the drains of members.
	drains map[pool.Key]*pool.Drain
	// containers has the attached containers by the references of their attachments.
	containers map[string]pool.Container
	flows      *flowCounts
	// dirty has the services whose pools must be computed again.
	dirty map[string]bool
	// woken receives a value when balancer.run has something to do.
	woken chan struct{}
	// observed receives a value when balancer.observe must check for passive checks again.
	observed chan struct{}
	// stuck says why the data planes still have an earlier state of a service.
	stuck map[string]string
	// transitions counts how often the checks have taken a member out or brought it
	// back.
	transitions map[pool.Key]uint64
	// unsaved says that the checks have results that are not saved.
	unsaved bool
	// savedHealth are the results of the checks that an earlier process has saved.
	savedHealth health.Snapshot
	// needed is closed by needOnce when there is a service.
	needed   chan struct{}
	needOnce sync.Once
	// batches are results of the checks that are not applied yet. batchMu protects
	// them, so that the checks never wait while something is applied.
	batchMu sync.Mutex
	batches []health.Batch
}

func newServices(st *state, n *networks) *services {
	s := &services{state: st, networks: n, flows: &flowCounts{state: st},
		transitions: map[pool.Key]uint64{}, needed: make(chan struct{}),
		pools: map[string]*pool.Pool{}, drains: map[pool.Key]*pool.Drain{}, containers: map[string]pool.Container{},
		dirty: map[string]bool{}, stuck: map[string]string{}, woken: make(chan struct{}, 1),
		observed: make(chan struct{}, 1)}
	s.health = health.NewMonitor(health.Options{Means: health.Means{Container: s.containerHealth},
		Dial: st.cfg.DialReal, Changed: s.healthChanged})
	return s
}

// markDirty makes the balancer compute the services' pools again.
func (s *services) markDirty(names ...string) {
	for _, name := range names {
		s.dirty[name] = true
	}
	s.wake()
}

// wake wakes balancer.run.
func (s *services) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// observeAgain wakes balancer.observe.
func (s *services) observeAgain() {
	select {
	case s.observed <- struct{}{}:
	default:
	}
}

// poolsOf computes the pools of a desired state, with the endpoints of a state. known are
// the endpoints with their addresses. If only is not nil, it computes only these and
// takes the others from the current pools.
func (s *services) poolsOf(w model.Desired, endpoints, known []model.Endpoint,
	only map[string]bool) map[string]*pool.Pool {
	all := make(map[string]*pool.Pool, len(w.Services))
	var inputs func(string) pool.Inputs
	for _, v := range w.Services {
		if s.problems[serviceProblem(v.Name)] != "" {
			continue
		}
		before := s.pools[v.Name]
		if only != nil && before != nil && !before.Restored && !only[v.Name] {
			all[v.Name] = before
			continue
		}
		if inputs == nil {
			inputs = s.inputs(w, endpoints, known)
		}
		all[v.Name] = pool.New(v, before, inputs(v.Name))
	}
	return all
}

// serviceProblem returns the key of a service's problem.
func serviceProblem(name string) string { return "service " + name }

// inputs returns the inputs of the computation of pools.
func (s *services) inputs(w model.Desired, endpoints, known []model.Endpoint) func(service string) pool.Inputs {
	found := pool.NewSandboxes(w.Attachments, endpoints, known, s.containers)
	now := time.Now()
	return func(service string) pool.Inputs {
		return pool.Inputs{Now: now, Selects: found.Selects, Owns: found.Owns, Alive: found.Alive,
			Drain: func(at netip.AddrPort) *pool.Drain { return s.drains[pool.Key{Service: service, At: at}] },
		}
	}
}
