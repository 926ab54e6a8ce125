package daemon

import (
	"context"
	"slices"
	"time"

	"fairlead/internal/daemon/pool"
	"fairlead/internal/sandbox"
)

// Containers reports events of containers. sandbox.Finder implements it.
type Containers interface {
	// FollowContainers calls notify for each running container, and then for each
	// change, until ctx ends.
	FollowContainers(ctx context.Context, notify func(sandbox.ContainerEvent))
}

// followContainers follows containers, from the first service on.
func (b *balancer) followContainers(ctx context.Context) {
	if b.cfg.Containers == nil {
		return
	}
	select {
	case <-b.services.needed:
		b.cfg.Containers.FollowContainers(ctx, b.handleContainer)
	case <-ctx.Done():
	}
}

// handleContainer records the event of a container.
func (b *balancer) handleContainer(n sandbox.ContainerEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	changed := map[string]any{}
	for _, ref := range n.Refs {
		before, known := b.services.containers[ref]
		c := before.After(n, time.Now())
		switch {
		case n.Gone && known:
			delete(b.services.containers, ref)
			changed[containerNote+ref] = nil
		case !n.Gone && !c.Equal(before):
			b.services.containers[ref] = c
			changed[containerNote+ref] = c
		}
	}
	if len(changed) == 0 {
		return
	}
	b.updateContainers(n.Refs, changed)
}

// updateContainers updates the services of containers, and saves the changed notes.
func (b *balancer) updateContainers(refs []string, changed map[string]any) {
	b.services.markDirty(b.servicesOf(refs)...)
	b.updateServers()
	if b.cfg.Passing != nil {
		b.warn("save the state of a container", b.cfg.Passing.Put(changed))
	}
}

// servicesOf returns the services of which a container with these references is or may
// become a real server.
func (b *balancer) servicesOf(refs []string) (names []string) {
	endpoints := map[string]bool{}
	for _, a := range b.desired.Attachments {
		if slices.Contains(refs, a.Ref) {
			endpoints[a.Name] = true
		}
	}
	for _, v := range b.desired.Services {
		p := b.services.pools[v.Name]
		if pool.HasSelector(v) || p != nil &&
			slices.ContainsFunc(p.Members, func(m pool.Member) bool { return endpoints[m.Endpoint] }) {
			names = append(names, v.Name)
		}
	}
	return names
}

// endStops returns containers to service that still run after StopTimeout: they ignore
// the signal, or the engine has given up.
func (b *balancer) endStops() {
	b.mu.Lock()
	defer b.mu.Unlock()
	var refs []string
	changed, now := map[string]any{}, time.Now()
	for ref, c := range b.services.containers {
		c, runsOn := c.EndStop(now)
		if !runsOn {
			continue
		}
		b.services.containers[ref] = c
		changed[containerNote+ref] = c
		refs = append(refs, ref)
	}
	if len(refs) > 0 {
		b.updateContainers(refs, changed)
	}
}
