package provider

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/signal"

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
type Docker struct {
	engine  *engine
	log     *slog.Logger
	options traefik.DockerOptions
	self    self
	// own is the ID of the container that the gateway runs in, "" while it is not known.
	own string
	// labels keeps what the labels of unchanged containers mean.
	labels *traefik.Docker
	// known are the containers by ID that run, or whose labels allow that they do not; stopping those
	// that got their stop signal.
	known    map[string]inspected
	stopping map[string]stop
	// containers are the known ones as the labels take them. A pointer stays the same until
	// its container changes.
	containers map[string]*traefik.Container
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

func newDocker(e *engine, value gateway.Docker, log *slog.Logger) *Docker {
	options := traefik.DockerOptions{Docker: value}
	return &Docker{engine: e, log: log, options: options, self: newSelf(),
		labels: traefik.NewDocker(options),
		known:  map[string]inspected{}, stopping: map[string]stop{}, containers: map[string]*traefik.Container{}}
}

// Follow implements Provider. While the engine does not answer, the last containers stay.
func (d *Docker) Follow(ctx context.Context, changed Changed) {
	persist(ctx, d.log, func() error { return d.follow(ctx, changed) })
}

func (d *Docker) follow(ctx context.Context, changed Changed) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, ended, err := d.engine.subscribe(ctx, "container", "network")
	if err != nil {
		return err
	}
	if err := d.list(ctx); err != nil {
		return err
	}
	changed(d.config())
	look := time.NewTicker(time.Minute)
	defer look.Stop()
	for {
		differs := false
		select {
		case err := <-ended:
			return err
		case e := <-events:
			differs = d.handle(ctx, e)
			d.engine.handled(e)
		case now := <-look.C:
			differs = d.survived(now)
		}
		if differs {
			changed(d.config())
		}
	}
}

// list reads all containers that matter.
func (d *Docker) list(ctx context.Context) error {
	ids, err := d.engine.list(ctx)
	if err != nil {
		return err
	}
	clear(d.known)
	for _, id := range ids {
		if err := d.read(ctx, id); err != nil {
			return err
		}
	}
	maps.DeleteFunc(d.stopping, func(id string, s stop) bool {
		c, ok := d.known[id]
		return !ok || !c.State.StartedAt.Equal(s.started)
	})
	return nil
}

// read reads one container.
func (d *Docker) read(ctx context.Context, id string) error {
	c, err := d.engine.inspect(ctx, id)
	delete(d.containers, id)
	switch {
	case errors.Is(err, os.ErrNotExist):
		delete(d.known, id)
		return nil
	case err != nil:
		return err
	case c.State.Running || traefik.AllowsNonRunning(c.Config.Labels):
		d.known[id] = c
	default:
		delete(d.known, id)
	}
	return nil
}

// handle reports whether the event changes the containers.
func (d *Docker) handle(ctx context.Context, e event) bool {
	if e.Type == "network" {
		return d.handleNetwork(ctx, e)
	}
	id := e.Actor.ID
	c, known := d.known[id]
	if e.before(c.State.StartedAt) { // the container has started again, or the clock was set back
		return d.reread(ctx, id)
	}
	action, _, _ := strings.Cut(e.Action, ":")
	switch action {
	case "kill":
		if !known || d.isStopping(id) || !stops(c.Config.StopSignal, e.Actor.Attributes["signal"]) {
			return false
		}
		grace := time.Duration(c.Config.StopTimeout) * time.Second
		d.stopping[id] = stop{c.State.StartedAt, time.Now().Add(max(survival, grace))}
		return true
	case "die", "destroy":
		delete(d.known, id)
		delete(d.containers, id)
		delete(d.stopping, id)
		if action == "die" && traefik.AllowsNonRunning(c.Config.Labels) {
			c.State.Running = false
			d.known[id] = c
		}
		return known
	case "create":
		// The attributes have the labels.
		return traefik.AllowsNonRunning(e.Actor.Attributes) && d.reread(ctx, id)
	case "start", "restart", "unpause", "pause", "health_status", "rename", "update":
		if action == "start" || action == "restart" {
			delete(d.stopping, id)
		}
		return d.reread(ctx, id)
	}
	return false
}

// handleNetwork is handle for an event of a network. A container joins its networks while it starts,
// and leaves them while it stops. The engine does not return it meanwhile, and other events would
// wait, so only running containers are read. The others have events of their own.
func (d *Docker) handleNetwork(ctx context.Context, e event) bool {
	id := e.Actor.Attributes["container"]
	joinsOrLeaves := e.Action == "connect" || e.Action == "disconnect"
	return joinsOrLeaves && d.known[id].State.Running && !d.isStopping(id) && d.reread(ctx, id)
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

// reread reads a container again, and reports whether it could be read.
func (d *Docker) reread(ctx context.Context, id string) bool {
	err := d.read(ctx, id)
	if err != nil {
		d.log.Warn("cannot read a container", "id", id, "error", err)
	}
	return err == nil
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
		c := d.containers[id]
		if c == nil || c.Stopping != d.isStopping(id) {
			// A container that is not complete is not in use.
			if recovery.Object("container "+id, func() { c = d.container(d.known[id]) }) != nil {
				continue
			}
			d.containers[id] = c
		}
		all = append(all, c)
	}
	maps.DeleteFunc(d.containers, func(id string, _ *traefik.Container) bool {
		_, ok := d.known[id]
		return !ok
	})
	return d.labels.Config(all)
}
