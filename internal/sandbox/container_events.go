package sandbox

import (
	"context"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// EndpointRef begins the reference of an endpoint of a Docker network; its ID follows.
const EndpointRef = "docker:"

// ContainerEvent reports the state of a container, or a change of it.
type ContainerEvent struct {
	// Refs are the references of the container's attachments: container:NAME, and
	// EndpointRef with its ID for each of its endpoints.
	Refs []string
	Name string
	// EndpointNames are the names by which the engine's resolver finds the container's
	// endpoints, by the endpoints' references. They are set only while the container runs.
	EndpointNames map[string][]string
	// Labels, Health, Paused and Started are set only while the container runs.
	Labels map[string]string
	// Health is the result of the engine's health check: starting, healthy or
	// unhealthy. It is empty if the container has no check.
	Health string
	Paused bool
	// Started is the start time as the engine writes it. It differs for each run
	// of the container.
	Started string
	// StopTimeout is how long the container may continue after a stop signal. A
	// container that runs longer is assumed to ignore the signal. 0 is no limit.
	// It is set only while the container runs.
	StopTimeout time.Duration
	// Stopping names the signal that stops the container, or says that it has
	// ended. StoppedAt is the time of the signal or of the end. Both are zero if the
	// container is not being stopped and has not ended.
	Stopping  string
	StoppedAt time.Time
	// Ended says that the container has ended.
	Ended bool
	// Gone says that the container was removed, or that it no longer has these
	// references.
	Gone bool
}

// engineEvents is the filter of the events that the engine sends. "died" and
// "remove" are podman's names; connect and disconnect are events of networks.
var engineEvents = map[string][]string{"type": {"container", "network"},
	"event": {"start", "kill", "die", "died", "destroy", "remove",
		"health_status", "pause", "unpause", "rename", "connect", "disconnect"}}

// FollowContainers calls notify for each running container of all engines, and
// then for each change, until ctx ends. The calls do not overlap. If no engine
// runs, it waits for one.
func (f Finder) FollowContainers(ctx context.Context, notify func(ContainerEvent)) {
	var all sync.WaitGroup
	var notifying sync.Mutex
	for _, socket := range f.Engines {
		ticks, err := Finder{NetnsDir: f.NetnsDir, Engines: []string{socket}}.Watch(ctx)
		if err != nil {
			continue // without inotify, the engine's start cannot be detected
		}
		n := newEventReader(socket, func(c ContainerEvent) {
			notifying.Lock()
			defer notifying.Unlock()
			notify(c)
		})
		all.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-ticks:
					_ = n.follow(ctx) // after an error, the next tick tries again
				}
			}
		})
	}
	all.Wait()
}

// inspected is the part of an engine's answer about a container that a
// ContainerEvent needs.
type inspected struct {
	Name   string
	Config struct {
		Labels     map[string]string
		StopSignal string
		// StopTimeout is in seconds; -1 is no limit.
		StopTimeout *int
	}
	State struct {
		Running, Paused bool
		StartedAt       string
		Health          *struct{ Status string }
	}
	NetworkSettings struct {
		Networks map[string]inspectedEndpoint
	}
}

// inspectedEndpoint is an endpoint of a container. DNSNames exists since Docker 25; it contains the
// names in Aliases.
type inspectedEndpoint struct {
	EndpointID        string
	Aliases, DNSNames []string
}

// names returns the names of the endpoint of a container.
func (e inspectedEndpoint) names(container string) []string {
	all := slices.Concat([]string{container}, e.Aliases, e.DNSNames)
	slices.Sort(all)
	return slices.Compact(all)
}

// event returns the event of a running container.
func (c inspected) event() ContainerEvent {
	e := ContainerEvent{Name: strings.TrimPrefix(c.Name, "/"), Labels: c.Config.Labels, Paused: c.State.Paused,
		Started:     c.State.StartedAt,
		StopTimeout: c.stopTimeout(), EndpointNames: map[string][]string{}}
	if c.State.Health != nil && c.State.Health.Status != "none" {
		e.Health = c.State.Health.Status
	}
	e.Refs = []string{containerRef + e.Name}
	for _, network := range c.NetworkSettings.Networks {
		if network.EndpointID != "" {
			ref := EndpointRef + network.EndpointID
			e.Refs = append(e.Refs, ref)
			e.EndpointNames[ref] = network.names(e.Name)
		}
	}
	return e
}

// stopSignal returns the signal that the engine sends to stop the container.
func (c inspected) stopSignal() syscall.Signal { return signalOf(c.Config.StopSignal) }

const (
	// defaultStopTimeout is the engines' timeout for containers without one.
	defaultStopTimeout = 10 * time.Second
	// stopSlack is added because the engine may be busy, and because a user may
	// stop the container with a longer timeout, which no event reports.
	stopSlack = time.Minute
)

// stopTimeout returns ContainerEvent.StopTimeout.
func (c inspected) stopTimeout() time.Duration {
	switch t := c.Config.StopTimeout; {
	case t == nil:
		return defaultStopTimeout + stopSlack
	case *t < 0:
		return 0
	default:
		return time.Duration(*t)*time.Second + stopSlack
	}
}

// startedAt returns when this run of the container started, or the zero time if
// that is unknown.
func (c ContainerEvent) startedAt() time.Time {
	t, _ := time.Parse(time.RFC3339Nano, c.Started)
	return t
}
