package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"fairlead/internal/daemon/pool"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// Containers reports events of containers. sandbox.Finder implements it.
type Containers interface {
	// FollowContainers calls notify for each running container, and then for each
	// change, until ctx ends.
	FollowContainers(ctx context.Context, notify func(sandbox.ContainerEvent))
}

// followContainers follows containers, from the first service on.
func (d *Daemon) followContainers(ctx context.Context) {
	if d.cfg.Containers == nil {
		return
	}
	select {
	case <-d.services.needed:
		d.cfg.Containers.FollowContainers(ctx, d.handleContainer)
	case <-ctx.Done():
	}
}

// handleContainer records the event of a container.
func (d *Daemon) handleContainer(n sandbox.ContainerEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	changed := map[string]any{}
	for _, ref := range n.Refs {
		before, known := d.services.containers[ref]
		c := before.After(n, time.Now())
		switch {
		case n.Gone && known:
			delete(d.services.containers, ref)
			changed[containerNote+ref] = nil
		case !n.Gone && !c.Equal(before):
			d.services.containers[ref] = c
			changed[containerNote+ref] = c
		}
	}
	if len(changed) == 0 {
		return
	}
	d.updateContainers(n.Refs, changed)
}

// updateContainers updates the services of containers, and saves the changed notes.
func (d *Daemon) updateContainers(refs []string, changed map[string]any) {
	d.services.markDirty(d.servicesOf(refs)...)
	if d.cfg.Passing != nil {
		d.warn("save the state of a container", d.cfg.Passing.Put(changed))
	}
}

// servicesOf returns the services of which a container with these references is or may
// become a real server.
func (d *Daemon) servicesOf(refs []string) (names []string) {
	endpoints := map[string]bool{}
	for _, a := range d.desired.Attachments {
		if slices.Contains(refs, a.Ref) {
			endpoints[a.Name] = true
		}
	}
	for _, v := range d.desired.Services {
		p := d.services.pools[v.Name]
		if pool.HasSelector(v) || p != nil &&
			slices.ContainsFunc(p.Members, func(m pool.Member) bool { return endpoints[m.Endpoint] }) {
			names = append(names, v.Name)
		}
	}
	return names
}

// containerHealth implements the checks of type docker.
func (d *Daemon) containerHealth(_ context.Context, endpoint string) (healthy bool, detail string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, attached := d.desired.Attachment(endpoint)
	c, known := d.services.containers[a.Ref]
	switch {
	case !attached:
		return false, "", fmt.Errorf("it is not a sandbox that is attached on this host: use another check")
	case !known:
		return false, "",
			fmt.Errorf("no container engine has reported sandbox %s: start its container engine, or use another check",
				a.Ref)
	case c.Health == "":
		return false, "", fmt.Errorf("container %s has no health check: add one, or use another check", c.Name)
	}
	return c.Health == "healthy", "the container is " + c.Health, nil
}

// startContainers starts to follow containers, if there is a service.
func (d *Daemon) startContainers(w model.Desired) {
	if len(w.Services) == 0 {
		return
	}
	d.services.needOnce.Do(func() { close(d.services.needed) })
}
