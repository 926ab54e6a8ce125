package provider

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/moby/sys/signal"

	"fairlead/internal/dockerapi"
	"fairlead/internal/frontend/traefik"
	"fairlead/internal/model/gateway"
	"fairlead/internal/recovery"
)

// Docker follows the containers of an engine.
//
// Theory of operation. It subscribes to the engine's events first and lists the
// containers then, so that no change is missed. After each event it asks for
// the container again. A container leaves as soon as the engine sends it its stop
// signal: it may still answer requests that it has, but should get no new one.
// That a container joins or leaves a network is an event of the network.
//
// It waits for the answer about a container, so that events have their effects in order, but only for
// a short time: then other containers go on (ask.go). A container that the engine cannot report stays
// as it was, and is asked for again.
type Docker struct {
	engine  *dockerapi.Engine
	log     *slog.Logger
	options traefik.DockerOptions
	self    self
	// own is the ID of the container that the gateway runs in, "" while it is not known.
	own string
	// labels keeps what the labels of unchanged containers mean.
	labels *traefik.Docker
	// known are the containers by ID that run, or whose labels allow that they do not; stopping those
	// that got their stop signal.
	known    map[string]dockerapi.Inspected
	stopping map[string]stop
	// containers are the known ones as the labels take them. A pointer stays the same until
	// its container changes.
	containers map[string]*traefik.Container
	// events are those of the engine; backlog those that have waited for an answer.
	subscription dockerapi.Subscription
	events       <-chan *dockerapi.Event
	backlog      []*dockerapi.Event
	// asking are the questions without an answer, by the ID of their container.
	asking      map[string]*question
	inspections *dockerapi.Inspections[*question]
	// failures are the containers that the engine could not report, by ID.
	failures map[string]*failure
	// patience is how long events wait for the answer about another container.
	patience time.Duration
}

// stop is a stop signal.
type stop struct {
	// started is the start of the container that the signal ends. The container may start again
	// under the same ID while the engine does not answer.
	started time.Time
	// until is when a container that still runs has survived the signal.
	until time.Time
}

// survival is the shortest time after which a container that still runs has survived its stop signal.
// It is longer than servers usually take to complete their requests.
const survival = 10 * time.Minute

// NewDocker returns the provider for an engine: for its containers, or with SwarmMode for the services of
// its swarm. Returns an error if the endpoint or its TLS settings are invalid.
func NewDocker(value gateway.Docker, log *slog.Logger) (Provider, error) {
	e, err := dockerapi.New(cmp.Or(value.Endpoint, "unix:///var/run/docker.sock"), value.TLS)
	if err != nil {
		return nil, err
	}
	if value.SwarmMode {
		return newSwarm(e, value, log), nil
	}
	return newDocker(e, value, log), nil
}

func newDocker(e *dockerapi.Engine, value gateway.Docker, log *slog.Logger) *Docker {
	options := traefik.DockerOptions{Docker: value}
	return &Docker{engine: e, log: log, options: options, self: newSelf(),
		labels: traefik.NewDocker(options),
		known:  map[string]dockerapi.Inspected{}, stopping: map[string]stop{},
		containers: map[string]*traefik.Container{}, failures: map[string]*failure{}, patience: patience,
		subscription: subscribe(e, "container", "network")}
}

// subscribe returns the subscription to the events of objects of these types.
func subscribe(e *dockerapi.Engine, types ...string) dockerapi.Subscription {
	return dockerapi.Subscription{Engine: e, Filter: dockerapi.Filter{"type": types}}
}

// Follow implements Provider. While the engine does not answer, the last containers stay.
func (d *Docker) Follow(ctx context.Context, changed Changed) {
	persist(ctx, d.log, showOutages("provider docker", changed, func(changed Changed) error {
		return d.follow(ctx, changed)
	}))
}

const (
	// flood is the number of events that wait while more come than are handled one by one. Then
	// several have one report.
	flood = 32
	// latestReport is the longest time between two reports during a flood.
	latestReport = time.Second
)

func (d *Docker) follow(ctx context.Context, changed Changed) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := d.subscription.Open(ctx)
	if err != nil {
		return err
	}
	d.events = stream.Events
	if err := d.list(ctx); err != nil {
		return err
	}
	changed(d.config())
	look := time.NewTicker(time.Minute)
	defer look.Stop()
	reported, differs := time.Now(), false
	for {
		if next, ok := d.waiting(); ok {
			differs = d.handle(ctx, next) || differs
		} else {
			select {
			case e, ok := <-d.events:
				if !ok {
					return stream.Err()
				}
				differs = d.handle(ctx, e) || differs
				d.subscription.Handled(e)
			case a := <-d.inspections.Answers:
				differs = d.answered(a) || differs
			case now := <-d.retryTime():
				d.retry(ctx, now)
			case now := <-look.C:
				differs = d.survived(now) || differs
			}
		}
		if differs && (len(d.events) < flood || time.Since(reported) > latestReport) {
			changed(d.config())
			reported, differs = time.Now(), false
		}
	}
}

// waiting returns the next event of the backlog.
func (d *Docker) waiting() (next *dockerapi.Event, ok bool) {
	if len(d.backlog) == 0 {
		return nil, false
	}
	next, d.backlog = d.backlog[0], d.backlog[1:]
	return next, true
}

// runningStates are the states of containers that have processes.
var runningStates = []string{"running", "paused", "restarting"}

// list returns the containers that run, and those whose labels allow that they do not.
func list(ctx context.Context, e *dockerapi.Engine) ([]dockerapi.Listed, error) {
	all, err := e.All(ctx, nil)
	return slices.DeleteFunc(all, func(c dockerapi.Listed) bool {
		return !slices.Contains(runningStates, c.State) && !traefik.AllowsNonRunning(c.Labels)
	}), err
}

// list reads all containers that matter.
func (d *Docker) list(ctx context.Context) error {
	all, err := list(ctx, d.engine)
	if err != nil {
		return err
	}
	before := d.asking
	d.asking, d.inspections = map[string]*question{}, dockerapi.NewInspections[*question](d.engine, mostQuestions)
	for _, c := range all {
		d.ask(ctx, c.ID, cmp.Or(c.Name(), dockerapi.Short(c.ID)))
		if q := before[c.ID]; q != nil {
			d.asking[c.ID].events = q.events
		}
	}
	gone := func(id string) bool { return d.asking[id] == nil }
	maps.DeleteFunc(d.known, func(id string, _ dockerapi.Inspected) bool { return gone(id) })
	maps.DeleteFunc(d.stopping, func(id string, _ stop) bool { return gone(id) })
	maps.DeleteFunc(d.failures, func(id string, _ *failure) bool { return gone(id) })
	d.await(ctx, func() bool { return len(d.asking) == 0 })
	return nil
}

// handle reports whether the event changes the containers.
func (d *Docker) handle(ctx context.Context, e *dockerapi.Event) bool {
	if e.Type == "network" {
		return d.handleNetwork(ctx, e)
	}
	id := e.Actor.ID
	action := e.Verb()
	if !slices.Contains(actions, action) {
		return false
	}
	c, known := d.known[id]
	old := e.Before(c.Started()) // the container has started again, or the clock was set back
	if q := d.asking[id]; q != nil && (action != "kill" || !known || old) {
		return d.handleLater(ctx, q, e)
	}
	if old {
		return d.reread(ctx, id, e.Actor.Attributes["name"])
	}
	switch action {
	case "kill":
		if !known || d.isStopping(id) || !stops(c.Config.StopSignal, e.Actor.Attributes["signal"]) {
			return false
		}
		d.stopping[id] = stop{c.Started(), time.Now().Add(grace(&c))}
		return true
	case "die", "destroy":
		return d.end(id, action)
	case "create":
		// The attributes have the labels.
		return traefik.AllowsNonRunning(e.Actor.Attributes) && d.reread(ctx, id, e.Actor.Attributes["name"])
	case "start", "restart":
		delete(d.stopping, id)
	}
	return d.reread(ctx, id, e.Actor.Attributes["name"])
}

// grace is the time after which the container has survived its stop signal.
func grace(c *dockerapi.Inspected) time.Duration {
	if t := c.Config.StopTimeout; t != nil {
		return max(survival, time.Duration(*t)*time.Second)
	}
	return survival
}

// actions are the events of containers that can change something.
var actions = []string{"kill", "die", "destroy", "create", "start", "restart", "unpause", "pause", "health_status",
	"rename", "update"}

// end removes a container that has died or was removed, and reports whether it was known, or had a problem.
func (d *Docker) end(id, action string) bool {
	c, known := d.known[id]
	_, failed := d.failures[id]
	delete(d.known, id)
	delete(d.containers, id)
	delete(d.stopping, id)
	delete(d.failures, id)
	if action == "die" && traefik.AllowsNonRunning(c.Config.Labels) {
		c.State.Running = false
		d.known[id] = c
	}
	return known || failed
}

// handleNetwork is handle for an event of a network. A container joins its networks while it starts,
// and leaves them while it stops. The engine does not return it meanwhile, and other events would
// wait, so only running containers are read. The others have events of their own.
func (d *Docker) handleNetwork(ctx context.Context, e *dockerapi.Event) bool {
	id := e.Container()
	joinsOrLeaves := e.Action == "connect" || e.Action == "disconnect"
	if !joinsOrLeaves || !d.known[id].State.Running || d.isStopping(id) {
		return false
	}
	if q := d.asking[id]; q != nil {
		q.later(e)
		return false
	}
	return d.reread(ctx, id, "")
}

// survived lets containers get requests again that have survived their stop signal, such as one of
// `docker kill --signal=TERM` that the process ignores, and reports whether there are any.
func (d *Docker) survived(now time.Time) bool {
	before := len(d.stopping)
	maps.DeleteFunc(d.stopping, func(_ string, s stop) bool { return now.After(s.until) })
	return len(d.stopping) != before
}

// isStopping reports whether a container got its stop signal.
func (d *Docker) isStopping(id string) bool {
	_, ok := d.stopping[id]
	return ok
}

// stops reports whether the signal, a name or a number, ends a container with the stop signal ("" means
// SIGTERM): it is that, or SIGKILL. Other signals, such as HUP, do not end it.
func stops(stopSignal, sent string) bool {
	got, err := signal.ParseSignal(sent)
	if err != nil {
		return false
	}
	end, err := signal.ParseSignal(cmp.Or(stopSignal, "TERM"))
	return got == syscall.SIGKILL || err == nil && got == end
}

// config returns the configuration of all known containers.
func (d *Docker) config() (gateway.Config, []traefik.Problem) {
	if own := d.ownNetworks(); !slices.Equal(own, d.options.GatewayNetworks) {
		d.options.GatewayNetworks = own
		d.labels = traefik.NewDocker(d.options)
	}
	var all []*traefik.Container
	for _, id := range slices.Sorted(maps.Keys(d.known)) {
		c, stale := d.containers[id], d.staleness(id)
		if c == nil || c.Stopping != d.isStopping(id) || c.Stale != stale {
			// A container that is not complete is not in use.
			known := d.known[id]
			if recovery.Object("container "+id, func() { c = d.container(&known) }) != nil {
				continue
			}
			c.Stale = stale
			d.containers[id] = c
		}
		all = append(all, c)
	}
	maps.DeleteFunc(d.containers, func(id string, _ *traefik.Container) bool {
		_, ok := d.known[id]
		return !ok
	})
	config, problems := d.labels.Config(all)
	return config, append(problems, d.unknown()...)
}
