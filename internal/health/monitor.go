package health

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fairlead/internal/alarm"
	"fairlead/internal/model"
)

// Options configure a Monitor.
type Options struct {
	Means
	// Dial returns a function that connects to a service's real server on the path
	// of clients' packets, or nil for an ordinary connection; see Target. It is
	// called when the service changes; the returned function must itself look up
	// anything else that can change.
	Dial func(model.VirtualService, model.RealServer) DialFunc
	// Changed is called with all changes since its last call, always from one
	// goroutine. It may call the Monitor.
	Changed func(Batch)
	// InFlight limits the checks that are in progress. The default is 4096, but at
	// most a quarter of the files that this process may open, because each check
	// may need one. Servers that are down get at most half of them, parallel checks
	// of a server an eighth, and commands 64, so that they do not delay other
	// checks.
	InFlight int
}

// Batch is a set of changes.
type Batch struct {
	// Services are the names of the services whose Effective may have changed. There
	// may be more than in Changes and Pools: a growing weight is not a change of
	// state.
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

// PoolChange is a service's change from one Mode to another, e.g. to ModePanic.
type PoolChange struct {
	Service string    `json:"service"`
	From    Mode      `json:"from"`
	To      Pool      `json:"to"`
	At      time.Time `json:"at"`
}

// Monitor checks the real servers of all services.
type Monitor struct {
	o Options
	// kick wakes the loop before its planned time.
	kick alarm.Signal
	work sync.WaitGroup

	mu       sync.Mutex
	services map[string]*service
	hosts    map[string]*host
	due      schedule
	waiting  queue
	// pending are servers whose first checks wait until holds is 0.
	pending []*server
	holds   int
	batch   Batch
	// touched are the services of the batch.
	touched map[string]bool
	// wake is when the loop plans to run next. delayed is the sum of the delays with
	// which it ran.
	wake     time.Time
	delayed  time.Duration
	stopped  bool
	counters Counters
	past     past
}

// NewMonitor returns a Monitor without services. It makes checks while Run runs.
// Its methods are safe for concurrent use.
func NewMonitor(o Options) *Monitor {
	o.InFlight = cmp.Or(o.InFlight, defaultInFlight())
	return &Monitor{o: o, kick: alarm.NewSignal(), services: map[string]*service{}, hosts: map[string]*host{},
		touched: map[string]bool{}, waiting: newQueue(o.InFlight)}
}

// defaultInFlight returns the default of Options.InFlight.
func defaultInFlight() int {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return 256 // a quarter of the usual limit of 1024 files
	}
	return int(max(64, min(4096, files.Cur/4)))
}

// tick is the shortest sleep of the loop: checks that become due in this time are
// started together.
const tick = 2 * time.Millisecond

// Run makes checks until ctx ends, and then waits for the checks in progress, which
// end with ctx. It may be called once.
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

// turn starts the checks that are due, and returns how long to sleep and the
// changes.
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

// plan updates a server's place in the schedule. It wakes the loop if the server
// is due before the planned time, or if its condition changed.
func (m *Monitor) plan(s *server, now time.Time) {
	s.turns = s.rec.turns(s.of.settings, now)
	m.due.set(s)
	if c := s.rec.condition(s.of.settings, now); c != s.reported {
		s.reported = c
		m.touch(s.of)
	}
	if !s.when.IsZero() && s.when.Before(m.wake) {
		m.kick.Send()
	}
}

// note records a change of a server's state.
func (m *Monitor) note(s *server, before model.RealState, changed bool, now time.Time) {
	if !changed {
		return
	}
	m.batch.Changes = append(m.batch.Changes, Change{Service: s.of.v.Name, Real: s.at, Endpoint: s.target.Endpoint,
		From: before, To: s.rec.State(), Cause: s.rec.Cause, At: now})
}

func (m *Monitor) touch(of *service) {
	m.touched[of.v.Name] = true
	m.kick.Send()
}

// changed returns the collected batch, and begins a new one.
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
