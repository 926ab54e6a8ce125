package provider

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/dockerapi"
	"fairlead/internal/frontend/traefik"
	"fairlead/internal/model/gateway"
)

// Swarm follows the services of an engine's swarm. The engine must be a manager.
//
// Theory of operation. The engine reports changes of services, and the containers of its own node. It
// does not report tasks, so Swarm also asks for them: soon after each event, then less and less often. A
// task on the engine's node leaves as soon as its container gets its stop signal; one on another node
// leaves when the swarm wants it to end.
//
// Each list of the engine (services, tasks, nodes) stays as it was while the engine refuses it, for example
// because a proxy of its socket does: the others are read nevertheless.
type Swarm struct {
	engine   *dockerapi.Engine
	events   dockerapi.Subscription
	log      *slog.Logger
	options  traefik.DockerOptions
	self     self
	interval time.Duration
	labels   *traefik.Docker
	// services, allTasks and nodes are the lists of the engine, own the networks of the gateway's container.
	services answered[[]service]
	allTasks answered[[]task]
	nodes    answered[map[string]netip.Addr]
	own      answered[[]string]
	// tasks are the running tasks by the ID of their container; stopping those whose container got
	// its stop signal.
	tasks    map[string]task
	stopping map[string]bool
	// containers are the tasks as the labels take them, by the same ID. A pointer stays the same until
	// its task changes.
	containers map[string]*traefik.Container
}

const (
	// soonest is the time from an event to the next question for the tasks. The time then doubles
	// with each question, up to the interval.
	soonest = 100 * time.Millisecond
	// usually is the interval if the settings have none.
	usually = 5 * time.Second
)

// NewSwarm returns the provider for the services of an engine's swarm, as NewDocker with SwarmMode.
func NewSwarm(value gateway.Docker, log *slog.Logger) (Provider, error) {
	value.SwarmMode = true
	return NewDocker(value, log)
}

func newSwarm(e *dockerapi.Engine, value gateway.Docker, log *slog.Logger) *Swarm {
	options := traefik.DockerOptions{Docker: value}
	return &Swarm{engine: e, events: subscribe(e, "container", "service", "node"), log: log,
		options: options, self: newSelf(), labels: traefik.NewDocker(options),
		interval: max(cmp.Or(value.RefreshSeconds, value.SwarmModeRefreshSeconds, usually), soonest),
		tasks:    map[string]task{}, stopping: map[string]bool{}, containers: map[string]*traefik.Container{}}
}

// Follow implements Provider. While the engine does not answer, or is no manager, the last tasks stay.
func (s *Swarm) Follow(ctx context.Context, changed Changed) {
	persist(ctx, s.log, showOutages("provider swarm", changed, func(changed Changed) error {
		return s.follow(ctx, changed)
	}))
}

func (s *Swarm) follow(ctx context.Context, changed Changed) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.events.Open(ctx)
	if err != nil {
		return err
	}
	if _, err := s.read(ctx); err != nil {
		return err
	}
	changed(s.config())
	soon := min(soonest, s.interval)
	wait, next := s.interval, time.Now().Add(s.interval)
	for earliest := time.Now(); ; {
		timer := time.NewTimer(time.Until(next))
		select {
		case e, ok := <-stream.Events:
			timer.Stop()
			if !ok {
				return stream.Err()
			}
			if s.stops(e) {
				changed(s.config())
			}
			s.events.Handled(e)
			// Events must not delay the next question, or many would prevent it.
			wait, next = soon, earlierOf(next, laterOf(earliest, time.Now().Add(soon)))
			continue
		case <-timer.C:
			wait = min(2*wait, s.interval)
		}
		began := time.Now()
		differs, err := s.read(ctx)
		if err != nil {
			return err
		}
		if differs {
			changed(s.config())
		}
		now := time.Now()
		earliest = now.Add(restFactor * now.Sub(began))
		next = laterOf(earliest, now.Add(wait))
	}
}

// restFactor is how many times longer the engine has rest than it needs for its answers.
const restFactor = 3

func earlierOf(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// stops reports whether the event is the stop signal of a task's container.
func (s *Swarm) stops(e *dockerapi.Event) bool {
	id := e.Actor.ID
	t, ok := s.tasks[id]
	if e.Type != "container" || e.Action != "kill" || !ok || s.stopping[id] ||
		!stops(t.Spec.ContainerSpec.StopSignal, e.Actor.Attributes["signal"]) {
		return false
	}
	s.stopping[id] = true
	return true
}

// config returns the configuration of all running tasks.
func (s *Swarm) config() (gateway.Config, []traefik.Problem) {
	var all []*traefik.Container
	for _, id := range slices.Sorted(maps.Keys(s.containers)) {
		c := s.containers[id]
		if s.stopping[id] && !c.Stopping {
			stopping := *c
			stopping.Stopping = true
			c, s.containers[id] = &stopping, &stopping
		}
		all = append(all, c)
	}
	config, problems := s.labels.Config(all)
	return config, append(problems, s.refused()...)
}
