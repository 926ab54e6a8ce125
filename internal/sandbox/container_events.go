package sandbox

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ContainerEvent is what an engine tells of a container.
type ContainerEvent struct {
	// Refs are the references of its attachments: container:NAME, and
	// docker:ENDPOINT of each of its endpoints.
	Refs []string
	Name string
	// Labels, Health, Paused and Started are known while it runs. Health is that
	// of the engine's own check: starting, healthy, unhealthy, or empty without
	// one. Started is when, as the engine writes it: it tells one run from the
	// next.
	Labels  map[string]string
	Health  string
	Paused  bool
	Started string
	// Patience is how long it may run on after a signal that stops it, until it is
	// taken to take no notice; 0 is for ever. It is known while it runs.
	Patience time.Duration
	// Stopping says by what it is being stopped, or that it has ended, since
	// StoppedAt; empty otherwise.
	Stopping  string
	StoppedAt time.Time
	// Ended says that it has.
	Ended bool
	// Gone says that it is no more, or that these are references of it no more.
	Gone bool
}

// engineEvents are the events that are told; "died" and "remove" are podman's
// words, and connect and disconnect are of networks.
var engineEvents = map[string][]string{"type": {"container", "network"}, "event": {"start", "kill", "die", "died", "destroy", "remove",
	"health_status", "pause", "unpause", "rename", "connect", "disconnect"}}

// FollowContainers calls tell with what happens to containers of all engines,
// beginning with those that run, until ctx ends. While there is no engine it
// waits for one.
func (f Finder) FollowContainers(ctx context.Context, notify func(ContainerEvent)) {
	var all sync.WaitGroup
	var one sync.Mutex
	for _, socket := range f.Engines {
		came, err := Finder{NetnsDir: f.NetnsDir, Engines: []string{socket}}.Watch(ctx)
		if err != nil {
			continue // there is no inotify: nobody can be waited for
		}
		n := newEventReader(socket, func(c ContainerEvent) {
			one.Lock()
			defer one.Unlock()
			notify(c)
		})
		all.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-came:
					_ = n.follow(ctx) // it comes again with the engine
				}
			}
		})
	}
	all.Wait()
}

// inspected is the part of an engine's answer about a container that is told.
type inspected struct {
	Name   string
	Config struct {
		Labels     map[string]string
		StopSignal string
		// StopTimeout is how many seconds it has for its end, -1 for ever.
		StopTimeout *int
	}
	State struct {
		Running, Paused bool
		StartedAt       string
		Health          *struct{ Status string }
	}
	NetworkSettings struct {
		Networks map[string]struct{ EndpointID string }
	}
}

func (c inspected) events() ContainerEvent {
	events := ContainerEvent{Name: strings.TrimPrefix(c.Name, "/"), Labels: c.Config.Labels, Paused: c.State.Paused, Started: c.State.StartedAt, Patience: c.patience()}
	if c.State.Health != nil && c.State.Health.Status != "none" {
		events.Health = c.State.Health.Status
	}
	events.Refs = []string{containerRef + events.Name}
	for _, network := range c.NetworkSettings.Networks {
		if network.EndpointID != "" {
			events.Refs = append(events.Refs, "docker:"+network.EndpointID)
		}
	}
	return events
}

// signal is how it is stopped.
func (c inspected) signal() syscall.Signal { return signalOf(c.Config.StopSignal) }

const (
	// stopTimeout is that of engines where a container has none of its own.
	stopTimeout = 10 * time.Second
	// slack is for an engine that is busy, and for a stop with a longer time than
	// the container's own: nobody tells of that.
	slack = time.Minute
)

// patience is that of ContainerEvent.
func (c inspected) patience() time.Duration {
	switch t := c.Config.StopTimeout; {
	case t == nil:
		return stopTimeout + slack
	case *t < 0:
		return 0
	default:
		return time.Duration(*t)*time.Second + slack
	}
}

// begun is when a run has; zero if nobody says.
func (c ContainerEvent) begun() time.Time {
	t, _ := time.Parse(time.RFC3339Nano, c.Started)
	return t
}
