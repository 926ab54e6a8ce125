package daemon

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// Container is what is known of a container that is attached.
type Container struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	// Started is when it was, and tells one run from the next.
	Started string `json:"started,omitempty"`
	// Stopping says why this run is about to end, since StoppedAt, empty if it is
	// not; Ended says that it has. StopTimeout is how long it may take, 0 for ever.
	Stopping    string        `json:"stopping,omitempty"`
	StoppedAt   time.Time     `json:"stoppedAt,omitzero"`
	Ended       bool          `json:"ended,omitempty"`
	StopTimeout time.Duration `json:"patience,omitempty"`
	// RunsOn says that it did not end when it was stopped, empty if that was not
	// so.
	RunsOn string `json:"runsOn,omitempty"`
	// Paused says that its processes are held for now.
	Paused bool `json:"paused,omitempty"`
	// Health is what its engine's own check says, empty if there is none.
	Health string `json:"health,omitempty"`
}

func (c Container) equal(o Container) bool {
	return c.Name == o.Name && c.Started == o.Started && c.Stopping == o.Stopping && c.StoppedAt.Equal(o.StoppedAt) && c.Ended == o.Ended &&
		c.StopTimeout == o.StopTimeout && c.RunsOn == o.RunsOn && c.Paused == o.Paused && c.Health == o.Health && maps.Equal(c.Labels, o.Labels)
}

// leaves says why it shall get no new flows, empty if it may.
func (c Container) leaves() string {
	if c.Stopping == "" && c.Paused {
		return "its container is paused"
	}
	return c.Stopping
}

// Containers tells of containers; sandbox.Finder does.
type Containers interface {
	// FollowContainers calls tell with what happens to containers, beginning
	// with those that run, until ctx ends.
	FollowContainers(ctx context.Context, notify func(sandbox.ContainerEvent))
}

// followContainers learns of containers from the first service on that may have
// one as its real server.
func (d *Daemon) followContainers(ctx context.Context) {
	if d.cfg.Containers == nil {
		return
	}
	select {
	case <-d.services.wanted:
		d.cfg.Containers.FollowContainers(ctx, d.heard)
	case <-ctx.Done():
	}
}

// heard is told of a container.
func (d *Daemon) heard(n sandbox.ContainerEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	changed := map[string]any{}
	for _, ref := range n.Refs {
		before, known := d.services.containers[ref]
		c := before
		switch {
		case n.Stopping != "":
			c = before.stopped(n, time.Now())
		default:
			c = Container{Name: n.Name, Labels: n.Labels, Health: n.Health, Paused: n.Paused, Started: n.Started, StopTimeout: n.StopTimeout}
			if before.Started == n.Started {
				c.Stopping, c.StoppedAt, c.Ended, c.RunsOn = before.Stopping, before.StoppedAt, before.Ended, before.RunsOn
			}
		}
		switch {
		case n.Gone && known:
			delete(d.services.containers, ref)
			changed[containerNote+ref] = nil
		case !n.Gone && !c.equal(before):
			d.services.containers[ref] = c
			changed[containerNote+ref] = c
		}
	}
	if len(changed) == 0 {
		return
	}
	d.noteContainers(n.Refs, changed)
}

// noteContainers has those of references served as they are now, and notes what
// has changed of them.
func (d *Daemon) noteContainers(refs []string, changed map[string]any) {
	d.services.markDirty(d.servedBy(refs)...)
	if d.cfg.Passing != nil {
		d.warn("note a container", d.cfg.Passing.Put(changed))
	}
}

// servedBy returns the services that a container of these references may be a
// real server of, or is.
func (d *Daemon) servedBy(refs []string) (names []string) {
	endpoints := map[string]bool{}
	for _, a := range d.desired.Attachments {
		if slices.Contains(refs, a.Ref) {
			endpoints[a.Name] = true
		}
	}
	for _, v := range d.desired.Services {
		p := d.services.pools[v.Name]
		if selects(v) || p != nil && slices.ContainsFunc(p.members, func(m member) bool { return endpoints[m.Endpoint] }) {
			names = append(names, v.Name)
		}
	}
	return names
}

// containerHealth answers the checks of type docker.
func (d *Daemon) containerHealth(_ context.Context, endpoint string) (healthy bool, detail string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, attached := d.attachment(endpoint)
	c, known := d.services.containers[a.Ref]
	switch {
	case !attached:
		return false, "", fmt.Errorf("it is no sandbox that is attached here: use another check")
	case !known:
		return false, "", fmt.Errorf("no container engine tells of %s", a.Ref)
	case c.Health == "":
		return false, "", fmt.Errorf("container %s has no health check: add one, or use another check", c.Name)
	}
	return c.Health == "healthy", "the container is " + c.Health, nil
}

// wantContainers has the containers followed from now on, if a service may have
// one as its real server.
func (d *Daemon) wantContainers(w model.Desired) {
	if len(w.Services) == 0 {
		return
	}
	d.services.want.Do(func() { close(d.services.wanted) })
}
