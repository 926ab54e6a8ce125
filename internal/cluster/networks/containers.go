package networks

import (
	"context"
	"slices"
	"strings"
	"sync"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/sandbox"
)

// Containers reports events of containers. sandbox.Finder implements it.
type Containers interface {
	// FollowContainers calls notify for each running container, and then for each change, until
	// ctx ends.
	FollowContainers(ctx context.Context, notify func(sandbox.ContainerEvent))
}

// containers has the names of the endpoints of running containers: their containers' names and
// aliases, as container engines report them.
type containers struct {
	// needed is closed by the first snapshot. No container engine is asked before.
	needed chan struct{}
	once   sync.Once

	mu    sync.Mutex
	names map[string][]string // by the endpoint's reference
}

func newContainers() *containers {
	return &containers{needed: make(chan struct{}), names: map[string][]string{}}
}

// need starts to follow the containers.
func (c *containers) need() { c.once.Do(func() { close(c.needed) }) }

// follow follows the containers until ctx ends, and calls changed when names have changed.
func (c *containers) follow(ctx context.Context, engines Containers, changed func()) {
	select {
	case <-c.needed:
	case <-ctx.Done():
		return
	}
	engines.FollowContainers(ctx, func(e sandbox.ContainerEvent) {
		if c.handle(e) {
			changed()
		}
	})
}

// handle records an event, and reports whether names have changed.
func (c *containers) handle(e sandbox.ContainerEvent) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ref := range e.Refs {
		before, known := c.names[ref]
		now, has := e.EndpointNames[ref]
		switch {
		case has && !slices.Equal(now, before):
			c.names[ref], changed = now, true
		case known && (e.Gone || e.Ended):
			delete(c.names, ref) // its record is deleted with its attachment
		}
	}
	return changed
}

// of returns the names of an attachment. Until an engine has reported those of its container, they are
// the published ones; known is false if there are none.
func (c *containers) of(v api.View, key string, s kv.Snapshot) (names []string, known bool) {
	if !strings.HasPrefix(v.Ref, sandbox.EndpointRef) {
		return []string{v.Name}, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if names, known = c.names[v.Ref]; known {
		return names, true
	}
	published, known, err := record.Get[record.Endpoint](s, key)
	return published.Names, known && err == nil
}
