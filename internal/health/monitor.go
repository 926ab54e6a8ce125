package health

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fairlead/internal/model"
)

// Options are what a Monitor works with.
type Options struct {
	Means
	// Dial returns how to reach a service's real server on the way that its
	// clients' packets take, nil for an ordinary connection; see Target. It is
	// asked when the service changes: what it returns looks up what else may
	// have changed by itself.
	Dial func(model.VirtualService, model.RealServer) DialFunc
	// Changed is called with all that has changed since it was last called, by
	// one goroutine. It may call the Monitor.
	Changed func(Batch)
	// InFlight bounds the checks that are under way; 0 is 4096, or a quarter of the
	// files that this process may open, as each may hold one. Servers that are down
	// have half of them at most, checks beside others an eighth, and commands 64,
	// so that they never hold up the others.
	InFlight int
}

// Batch is what has changed.
type Batch struct {
	// Services are the names of those whose Effective may be another: more than
	// those below, as a weight that grows is no change of state.
	Services []string
	Changes  []Change
	Pools    []PoolChange
}

// Change is a real server's change of state.
type Change struct {
	Service  string          `json:"service"`
	Real     netip.AddrPort  `json:"real"`
	Endpoint string          `json:"endpoint,omitempty"`
	From     model.RealState `json:"from"`
	To       model.RealState `json:"to"`
	Cause    string          `json:"cause"`
	At       time.Time       `json:"at"`
}

// PoolChange is a service's change of mode.
type PoolChange struct {
	Service string    `json:"service"`
	From    Mode      `json:"from"`
	To      Pool      `json:"to"`
	At      time.Time `json:"at"`
}

// Monitor checks the real servers of all services.
type Monitor struct {
	o Options
	// kick wakes the loop, before the time that it meant to.
	kick chan struct{}
	work sync.WaitGroup

	mu       sync.Mutex
	services map[string]*service
	due      schedule
	waiting  queue
	// pending are servers whose first checks wait until there are no holds.
	pending []*server
	holds   int
	batch   Batch
	// touched are the services of the batch.
	touched map[string]bool
	// wake is when the loop means to look next, and late by how much it was later
	// than it meant, all in all.
	wake     time.Time
	delayed  time.Duration
	stopped  bool
	counters Counters
	past     past
}

// NewMonitor returns a Monitor of no service. It checks while it runs.
func NewMonitor(o Options) *Monitor {
	o.InFlight = cmp.Or(o.InFlight, room())
	return &Monitor{o: o, kick: make(chan struct{}, 1), services: map[string]*service{}, touched: map[string]bool{}, waiting: newQueue(o.InFlight)}
}

// room returns how many checks may be under way where nobody says.
func room() int {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return 256 // of the 1024 that every process has
	}
	return int(max(64, min(4096, files.Cur/4)))
}

// tick is how long the loop sleeps at least: what is due meanwhile is started
// together.
const tick = 2 * time.Millisecond

// Run checks until ctx ends, once; then it waits for the checks under way, which end
// with it.
func (m *Monitor) Run(ctx context.Context) {
	defer m.work.Wait()
	timer, planned := time.NewTimer(0), time.Now()
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			m.stop()
			return
		case <-timer.C:
			m.overslept(time.Since(planned))
		case <-m.kick:
		}
		sleep, batch := m.turn(ctx, time.Now())
		if len(batch.Services) > 0 && m.o.Changed != nil {
			m.o.Changed(batch)
		}
		planned = time.Now().Add(sleep)
		timer.Reset(sleep)
	}
}

func (m *Monitor) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = true
}

// turn starts what is due, and returns how long to sleep and what has changed.
func (m *Monitor) turn(ctx context.Context, now time.Time) (time.Duration, Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s := m.due.first(); s != nil && !s.when.After(now); s = m.due.first() {
		if !s.turns.IsZero() && !s.turns.After(now) {
			m.note(s, s.rec.State(), s.rec.age(s.of.settings, now), now)
		}
		if !s.next.IsZero() && !s.next.After(now) {
			m.ask(s, now)
		}
		m.plan(s, now)
	}
	for c := m.waiting.take(); c != nil; c = m.waiting.take() {
		m.work.Go(func() { m.check(ctx, c) })
	}
	sleep := time.Hour
	if s := m.due.first(); s != nil {
		sleep = max(tick, s.when.Sub(now))
	}
	m.wake = now.Add(sleep)
	return sleep, m.changed(now)
}

// plan puts a server into the schedule, and sees that the loop is up in time,
// also where what it has told of the server is no longer so.
func (m *Monitor) plan(s *server, now time.Time) {
	s.turns = s.rec.turns(s.of.settings, now)
	m.due.set(s)
	if c := s.rec.condition(s.of.settings, now); c != s.notified {
		s.notified = c
		m.touch(s.of)
	}
	if !s.when.IsZero() && s.when.Before(m.wake) {
		m.nudge()
	}
}

// note takes down a change of a server's state.
func (m *Monitor) note(s *server, before model.RealState, changed bool, now time.Time) {
	if !changed {
		return
	}
	m.batch.Changes = append(m.batch.Changes, Change{Service: s.of.v.Name, Real: s.at, Endpoint: s.target.Endpoint,
		From: before, To: s.rec.State(), Cause: s.rec.Cause, At: now})
}

func (m *Monitor) touch(of *service) {
	m.touched[of.v.Name] = true
	m.nudge()
}

func (m *Monitor) nudge() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// changed returns the batch that has gathered, and begins another.
func (m *Monitor) changed(now time.Time) Batch {
	b := m.batch
	m.batch = Batch{}
	for name := range m.touched {
		of := m.services[name]
		if of == nil {
			continue
		}
		b.Services = append(b.Services, name)
		if p := Judge(of.v, of.view(now)); p.Mode != of.pool.Mode {
			b.Pools = append(b.Pools, PoolChange{Service: name, From: of.pool.Mode, To: p, At: now})
			of.pool = p
		}
	}
	clear(m.touched)
	slices.Sort(b.Services)
	return b
}
