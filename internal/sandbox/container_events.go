package sandbox

import (
	"context"
	"slices"
	"sync"
	"time"

	"fairlead/internal/dockerapi"
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
var engineEvents = dockerapi.Filter{"type": {"container", "network"},
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

func names(e dockerapi.Endpoint, container string) []string {
	all := slices.Concat([]string{container}, e.Aliases, e.DNSNames)
	slices.Sort(all)
	return slices.Compact(all)
}

// event returns the event of a running container.
func event(c *dockerapi.Inspected) ContainerEvent {
	e := ContainerEvent{Name: c.PlainName(), Labels: c.Config.Labels, Health: c.Health(), Paused: c.State.Paused,
		Started: c.State.StartedAt, StopTimeout: stopTimeout(c), EndpointNames: map[string][]string{}}
	e.Refs = []string{containerRef + e.Name}
	for _, network := range c.NetworkSettings.Networks {
		if network.EndpointID != "" {
			ref := EndpointRef + network.EndpointID
			e.Refs = append(e.Refs, ref)
			e.EndpointNames[ref] = names(network, e.Name)
		}
	}
	return e
}

const (
	// defaultStopTimeout is the engines' timeout for containers without one.
	defaultStopTimeout = 10 * time.Second
	// stopSlack is added because the engine may be busy, and because a user may
	// stop the container with a longer timeout, which no event reports.
	stopSlack = time.Minute
)

// stopTimeout returns ContainerEvent.StopTimeout.
func stopTimeout(c *dockerapi.Inspected) time.Duration {
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
func (c ContainerEvent) startedAt() time.Time { return dockerapi.Time(c.Started) }
