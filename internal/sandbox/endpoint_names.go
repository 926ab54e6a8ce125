package sandbox

import (
	"context"
	"slices"
	"sync"

	"fairlead/internal/dockerapi"
)

// EndpointNames knows the names of an engine's running containers by the IDs of their endpoints. It reads a container
// when the engine reports its start. So Of needs no request, and the engine can wait for its caller. The zero value
// knows no names. The methods may be called concurrently.
type EndpointNames struct {
	mu sync.Mutex
	// containers are by their IDs.
	containers map[string]endpointsOf
}

// endpointsOf is a container's name with the IDs of its endpoints.
type endpointsOf struct {
	name      string
	endpoints []string
}

// Of returns the name of the container that has an endpoint. It is empty if it is not known.
func (n *EndpointNames) Of(endpoint string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.containers {
		if slices.Contains(c.endpoints, endpoint) {
			return c.name
		}
	}
	return ""
}

// Follow keeps the names up to date until ctx ends. If the engine does not run, it waits for it.
func (n *EndpointNames) Follow(ctx context.Context, e Engine) error {
	started, err := e.Watch(ctx)
	if err != nil {
		return err
	}
	api, events := e.api(), dockerapi.Filter{"type": {"container", "network"}, "event": {"start", "connect", "destroy"}}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-started:
		}
		// After an error, the next start tries again.
		_ = follow(ctx, api, events, func() { n.read(ctx, api, "") }, func(h *dockerapi.Event) {
			switch h.Action {
			case "start", "connect":
				n.read(ctx, api, h.Container())
			case "destroy":
				n.mu.Lock()
				delete(n.containers, h.Actor.ID)
				n.mu.Unlock()
			}
		})
	}
}

// read reads a container, or all of them if id is empty.
func (n *EndpointNames) read(ctx context.Context, e *dockerapi.Engine, id string) {
	var filter dockerapi.Filter
	if id != "" {
		filter = dockerapi.Filter{"id": {id}}
	}
	all, err := e.Running(ctx, filter)
	if err != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if id == "" || n.containers == nil {
		n.containers = map[string]endpointsOf{}
	}
	for _, c := range all {
		has := endpointsOf{name: c.Name()}
		if has.name == "" {
			continue
		}
		for _, network := range c.NetworkSettings.Networks {
			has.endpoints = append(has.endpoints, network.EndpointID)
		}
		n.containers[c.ID] = has
	}
}
