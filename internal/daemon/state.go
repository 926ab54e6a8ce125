package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/daemon/journal"
	"fairlead/internal/daemon/leases"
	"fairlead/internal/daemon/resets"
	"fairlead/internal/daemon/sockets"
	"fairlead/internal/engine"
	"fairlead/internal/lock"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// state is what all parts of the daemon share. Each part embeds it and adds fields of
// its own. A part uses only parts below it:
//
//	Daemon        requests
//	├─ healer     repairs what differs on the host
//	├─ externals  requests of container engines
//	├─ reals      requests for single real servers
//	├─ applier    saves and applies desired states
//	│  ├─ overlays   answers to the checks of other hosts
//	│  ├─ gateways   the HTTP gateway, with the servers of its services
//	│  └─ sandboxes  sandboxes that are watched
//	├─ balancer   events of containers, results of checks, ends of drains
//	├─ meters     counters
//	└─ services   pools of virtual services, and their application
//	   └─ networks   networks that cannot exist on this host for now
//
// Methods of parts expect that mu is locked, unless they lock it themselves. The order
// of locks is meters.counting, mu, services.batchMu.
type state struct {
	cfg    Config
	engine *engine.Engine
	// leases are the DHCP clients of attachments.
	leases *leases.Clients
	// ports are the host ports of the proxy.
	ports *sockets.Proxies
	// resets are the resets of clients that steps have begun.
	resets *resets.Queue

	// mu protects the fields below, and the fields of all parts, except channels and
	// those whose comments say something else. It is held while the engine applies a
	// step. Its holder waits for no other process, network or slow disk (package lock).
	mu lock.Mutex
	// repeats is true while once runs.
	repeats bool
	desired model.Desired
	// prepared are the services of the last call of prepare.
	prepared []model.VirtualService
	// full is the state that the engine has applied, with leased addresses and the
	// publish modes that it chose.
	full model.State
	// problems has the reason why an attachment, publish, network or service is not
	// applied, by its name.
	problems map[string]string
	// known are the problems at the begin of the step, or after the last state that it has applied.
	known map[string]string

	// The fields below need no lock.

	journal journal.Journal
	// applied receives a value when the applied objects may have changed.
	applied chan struct{}
	// serversChanged receives a value when servers of the gateway may have changed.
	serversChanged chan struct{}
	// life ends with the daemon.
	life context.Context
	end  context.CancelFunc
}

func newState(cfg Config) *state {
	if cfg.Meter == nil {
		cfg.Meter = noMeter{}
	}
	s := &state{cfg: cfg, problems: map[string]string{}, applied: make(chan struct{}, 1),
		serversChanged: make(chan struct{}, 1)}
	s.ports = sockets.NewProxies(sockets.Config{Start: cfg.StartProxy, Find: cfg.FindProxy, Report: s.reportProxy})
	s.resets = resets.New(&s.mu)
	s.engine = engine.New(engine.Config{Kernel: cfg.Kernel, Flows: cfg.Flows, Inspector: cfg.Inspector,
		Store: cfg.Store, StartProxy: s.ports.Start, FindProxy: s.ports.Finder(), Facts: cfg.Facts,
		Later: s.resetLater})
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// once locks mu and calls f. Only f may apply a state, because the callers of once repeat it if it needs ports that the
// proxy has not opened yet, for example because the proxy has died.
func (s *state) once(f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repeats, s.known = true, maps.Clone(s.problems)
	defer func() { s.repeats = false }()
	return f()
}

// step calls f once, and again each time the proxy has opened ports that f needed. If f has changed the ports, step
// returns when the proxy has them. It waits for the proxy without mu, at most ten seconds each time. It calls f again,
// too, when the DHCP clients that f has stopped have released their leases (releasing). In the end it waits without mu
// until the clients are reset whose connections f has ended.
func (s *state) step(ctx context.Context, f func() error) error {
	var own <-chan struct{}
	f = s.resets.Own(&own, f)
	err := s.releasing(func() error { return s.ports.Do(ctx, func() error { return s.once(f) }) })
	resets.Wait(ctx, own)
	return err
}

// repairAll reads and repairs all objects (engine.Heal). Only f of once may call it: a repair can reset clients, and a
// request that ran meanwhile would take the resets for its own and wait for them.
func (s *state) repairAll(ctx context.Context) ([]plan.Op, error) {
	lock.Assert(s.repeats, "the host is repaired outside of once: a request would wait for the resets of the repair")
	return s.engine.Heal(ctx)
}

// resetLater implements engine.Config.Later.
func (s *state) resetLater(finish func() error) {
	s.resets.Add(func() {
		s.warn("reset clients of services", finish())
		s.wakeHealer() // the virtual addresses may have been removed
	})
}

// stepFor is step with a result: that of the last call of f.
func stepFor[R any](ctx context.Context, s *state, f func() (R, error)) (r R, err error) {
	err = s.step(ctx, func() (err error) { r, err = f(); return err })
	return r, err
}

// soon is step for callers that must not wait: it repeats f in the background. It logs the error of f.
func (s *state) soon(what string, f func() error) { s.later(what, s.once(f), f) }

// later logs the error of f, or repeats f in the background if f needed ports that the proxy has not opened yet.
func (s *state) later(what string, err error, f func() error) {
	if sockets.AreUnopened(err) {
		go func() { s.later(what, s.step(s.life, f), f) }()
	} else if err != nil && s.life.Err() == nil {
		s.cfg.Log.Error(what, "error", err)
	}
}

// save stores a desired state.
func (s *state) save(next model.Desired) error {
	if err := s.cfg.Store.SaveDesired(next); err != nil {
		return fmt.Errorf("write desired state: %w", err)
	}
	s.desired = next
	return nil
}

// problem records why an object is not applied.
func (s *state) problem(name string, err error) {
	s.problems[name] = err.Error()
	s.cfg.Log.Error("apply", "object", name, "error", err)
}

// changed reports that the state has changed.
func (s *state) changed() {
	if s.cfg.Changed != nil {
		s.cfg.Changed()
	}
}

// wakeHealer makes the healer read which objects are applied now.
func (s *state) wakeHealer() {
	select {
	case s.applied <- struct{}{}:
	default:
	}
}

// informational are the kinds of events that need no action.
var informational = map[api.EventKind]bool{api.RealIsUp: true, api.RealJoined: true, api.RealLeft: true,
	api.DrainBegun: true, api.DrainEnded: true, api.RealEnabled: true, api.QuorumGained: true, api.ChecksBelieved: true,
	api.NodeJoined: true, api.NodeLeft: true, api.NodeDrained: true, api.NodeEnabled: true,
	api.EtcdAnswers: true, api.ClusterFollowed: true}

// note logs an event and adds it to the journal.
func (s *state) note(e api.Event) {
	e.Time = time.Now()
	args := []any{"object", e.Object}
	if len(e.Commands) > 0 {
		args = append(args, "commands", strings.Join(e.Commands, "; "))
	}
	if e.By != "" {
		args = append(args, "by", e.By)
	}
	if e.Detail != "" {
		args = append(args, "detail", e.Detail)
	}
	level := slog.LevelWarn
	if informational[e.Kind] {
		level = slog.LevelInfo
	}
	s.cfg.Log.Log(s.life, level, string(e.Kind), args...)
	s.journal.Add(e)
}

// reportProxy notes that the proxy refuses its configuration, or has taken it again.
func (s *state) reportProxy(err error) {
	e := api.Event{Kind: api.Healed, Object: "the proxy's ports"}
	if err != nil {
		e.Kind, e.Detail = api.Unhealed, err.Error()
	}
	s.note(e)
}

// warn logs an error, if there is one.
func (s *state) warn(what string, err error) {
	if err != nil {
		s.cfg.Log.Warn(what, "error", err)
	}
}
