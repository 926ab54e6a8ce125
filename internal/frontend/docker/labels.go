package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"fairlead/internal/daemon"
	"fairlead/internal/frontend/text"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// The labels of a container on the host's network: what is published of it, and
// what becomes of binds to other ports, as in `fairlead run`.
const (
	LabelPublish     = "fairlead.publish"
	LabelUnpublished = "fairlead.unpublished"
)

// Workloads is the daemon behind labels; *daemon.Daemon has it.
type Workloads interface {
	Admit(daemon.Workload) (changed bool, err error)
	Dismiss(name string) error
	NeedsRestart(name string) (bool, error)
	Attachments() []daemon.View
}

// Engine is asked for containers; sandbox.Engine has it.
type Engine interface {
	Labelled(ctx context.Context, label, id string) ([]sandbox.Labelled, error)
	FollowLabelled(ctx context.Context, label string, notified func(), notify func(sandbox.Happened)) error
	CgroupOf(ctx context.Context, id string) (string, error)
	Watch(context.Context) (<-chan struct{}, error)
}

// Labels publishes the ports of containers on the host's network by their
// labels.
//
// Theory of operation. A container asks for a port when its process runs, and
// its engine tells of its start after that. So its cgroup is led when the
// cgroup is made, which inotify tells; the labels are known by then, or asked
// for, as the engine has told of the container's creation. The runtime makes the
// cgroup before it puts anything into it, and so an empty one is frozen until it
// is led: the runtime waits meanwhile. On a host that is busy the runtime may be
// quicker: then it still has to start the container's process, which most often
// is led before it binds anything. Of a container that was missed, and of those
// that run when we come, the engine says the cgroup. Whether what ran there had
// bound something until it was led, its sockets say.
//
// Who listens to the engine and to inotify must not wait: what takes time is
// done by one worker, in order.
type Labels struct {
	Workloads Workloads
	Engine    Engine
	// Root is where cgroup v2 is mounted.
	Root string
	Log  *slog.Logger

	work chan job
	// all are those who give the worker work.
	all sync.WaitGroup

	mu    sync.Mutex
	known map[string]sandbox.Labelled
	// announced are those whose labels are being asked for, with what of them is
	// held meanwhile.
	announced map[string]*frozen
	where     *groups
}

// job is something to do about a container.
type job struct {
	do func()
	// frozen is let go, done or not.
	frozen *frozen
}

// backlog is how many jobs may wait: more than a host has such containers.
const backlog = 4096

// Run follows the engine and the cgroups until ctx ends.
func (l *Labels) Run(ctx context.Context) (err error) {
	l.known, l.announced, l.work = map[string]sandbox.Labelled{}, map[string]*frozen{}, make(chan job, backlog)
	if l.where, err = watchGroups(l.Root); err != nil {
		return fmt.Errorf("watch for containers' cgroups: %w", err)
	}
	defer l.where.close()
	changed, err := l.Engine.Watch(ctx)
	if err != nil {
		return err
	}
	l.all.Go(func() { l.follow(ctx, changed) })
	l.all.Go(l.readGroups)
	for {
		select {
		case <-ctx.Done():
			l.where.end()
			go func() { l.all.Wait(); close(l.work) }()
			for j := range l.work {
				j.frozen.end()
			}
			return nil
		case j := <-l.work:
			j.do()
			j.frozen.end()
		}
	}
}

// readGroups follows inotify until it is ended. It must be quicker than a
// runtime, and has little to do: so it runs before others.
func (l *Labels) readGroups() {
	runtime.LockOSThread() // which ends with us
	urgent()
	for buf := make([]byte, 64<<10); ; {
		n, err := l.where.read(buf)
		if err != nil {
			l.warn("watch for containers' cgroups", err)
		}
		if err != nil || n == 0 {
			return
		}
		l.mu.Lock()
		all, err := l.where.parse(buf[:n])
		for _, g := range all {
			l.met(g)
		}
		l.mu.Unlock()
		l.warn("watch for containers' cgroups", err)
	}
}

// follow follows the engine, again whenever it may have come back.
func (l *Labels) follow(ctx context.Context, changed <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		_ = l.Engine.FollowLabelled(ctx, LabelPublish, func() { l.takeStock(ctx) }, func(h sandbox.Happened) { l.heard(ctx, h) })
	}
}

// takeStock looks at all containers: what happened before is not told.
func (l *Labels) takeStock(ctx context.Context) {
	running := map[string]bool{}
	for _, c := range l.meet(ctx, "") {
		running[attachmentOf(c.ID)] = c.Running
		if c.Running {
			l.later(func() { l.started(ctx, c) })
		}
	}
	for _, a := range l.Workloads.Attachments() {
		// One whose cgroup is there runs, or is about to.
		if a.Network == daemon.HostNetwork && a.Cgroup == "" && !running[a.Name] {
			l.warn("take away what was a container's", l.Workloads.Dismiss(a.Name))
		}
	}
}

// later has the worker do something.
func (l *Labels) later(do func()) { l.work <- job{do: do} }

// announce has a container's cgroup held until its labels are known.
func (l *Labels) announce(ctx context.Context, id string) {
	l.mu.Lock()
	l.announced[id] = nil
	l.mu.Unlock()
	l.meet(ctx, id)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.announced[id].end() // it is not for us
	delete(l.announced, id)
}

// meet learns the labels of a container, or of all, whose cgroups may be there.
func (l *Labels) meet(ctx context.Context, id string) []sandbox.Labelled {
	all, err := l.Engine.Labelled(ctx, LabelPublish, id)
	l.warn("look for containers by their labels", err)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range all {
		l.known[c.ID] = c
		for _, g := range l.where.find(c.ID) {
			if c.Starting { // it may have been frozen by a daemon that was killed
				defer func() { l.work <- job{func() {}, limited(g.path)} }()
			}
			l.met(g)
		}
	}
	return all
}

// heard is told by the engine.
func (l *Labels) heard(ctx context.Context, h sandbox.Happened) {
	switch h.Action {
	case "create":
		l.announce(ctx, h.Actor.ID)
	case "start":
		l.mu.Lock()
		c, known := l.known[h.Actor.ID]
		l.mu.Unlock()
		if known {
			l.later(func() { l.started(ctx, c) })
		}
	case "destroy":
		l.mu.Lock()
		delete(l.known, h.Actor.ID)
		l.mu.Unlock()
		l.later(func() { l.ended(h.Actor.ID) })
	case "die":
		l.later(func() { l.ended(h.Actor.ID) })
	}
}

// met is told of a container's cgroup.
func (l *Labels) met(g group) {
	c, known := l.known[g.id]
	inUse, announced := l.announced[g.id]
	if inUse == nil && !g.gone && (announced || known && c.HostNetwork) {
		inUse = freeze(g.path)
	}
	switch {
	case g.gone:
		l.later(func() { l.ended(g.id) })
	case known && c.HostNetwork:
		delete(l.announced, g.id)
		l.work <- job{func() { l.admit(c, g.path, nil, inUse) }, inUse}
	case announced:
		l.announced[g.id] = inUse
	}
}

// started finds the cgroup of a container that runs, unless it was met. The
// worker does not wait for the engine: it may not answer before a container has
// started that waits for the worker.
func (l *Labels) started(ctx context.Context, c sandbox.Labelled) {
	if !c.HostNetwork {
		l.Log.Warn("publish by a label", "container", c.Name, "error", "it is not on the host's network: publish its ports by `docker run -p`")
		return
	}
	if l.wasMet(c.ID) {
		return
	}
	l.all.Go(func() {
		path, err := l.Engine.CgroupOf(ctx, c.ID)
		l.later(func() { l.found(c, path, err) })
	})
}

// found is told by the engine where a container runs, which may have been met
// meanwhile.
func (l *Labels) found(c sandbox.Labelled, path string, err error) {
	if l.wasMet(c.ID) {
		return
	}
	switch {
	case errors.Is(err, sandbox.ErrAbsent), errors.Is(err, os.ErrNotExist):
		return // it has ended
	case err == nil && !strings.Contains(path, c.ID):
		err = fmt.Errorf("the container is in no cgroup v2 of its own, but in %s: boot with systemd.unified_cgroup_hierarchy=1", path)
	case err == nil:
		path = filepath.Join(l.Root, path)
		l.mu.Lock()
		l.warn("watch for containers' cgroups", l.where.watch(filepath.Dir(path)))
		l.mu.Unlock()
	}
	l.admit(c, path, err, nil)
}

// wasMet reports whether the container's cgroup was found where it is watched
// for.
func (l *Labels) wasMet(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.where.find(id)) > 0
}

// admit publishes what the labels say. It was soon enough if nothing ran in the
// cgroup until then, or what ran had bound nothing.
func (l *Labels) admit(c sandbox.Labelled, path string, wrong error, inUse *frozen) {
	w, err := workload(c)
	w.Cgroup, w.Wrong = path, errors.Join(wrong, err)
	changed, err := l.Workloads.Admit(w)
	inTime := inUse.end()
	if err != nil {
		l.Log.Warn("publish by a label", "container", c.Name, "error", err)
		return
	}
	if !changed || inTime || !populated(path) {
		return
	}
	needsRestart, err := l.Workloads.NeedsRestart(w.Name)
	l.warn("publish by a label", err)
	if needsRestart {
		l.Log.Warn("publish by a label", "container", c.Name, "error", "it ran before its ports were led: what it has bound until then is where it asked for: restart it")
	}
}

// ended takes away what was a container's, unless it runs again.
func (l *Labels) ended(id string) {
	name := attachmentOf(id)
	for _, a := range l.Workloads.Attachments() {
		if a.Name != name || a.Network != daemon.HostNetwork {
			continue
		}
		if _, err := os.Stat(a.Cgroup); a.Cgroup == "" || err != nil {
			l.warn("take away what was a container's", l.Workloads.Dismiss(name))
		}
	}
}

func (l *Labels) warn(what string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		l.Log.Warn(what, "error", err)
	}
}

func attachmentOf(id string) string { return "docker-" + id[:min(short, len(id))] }

// workload reads a container's labels.
func workload(c sandbox.Labelled) (daemon.Workload, error) {
	w := daemon.Workload{Name: attachmentOf(c.ID), Ref: string(sandbox.Container) + ":" + c.Name, Unlisted: model.Unpublished(c.Labels[LabelUnpublished])}
	var errs []error
	for part := range strings.SplitSeq(c.Labels[LabelPublish], ",") {
		p, err := text.Publish(strings.TrimSpace(part))
		if err != nil {
			errs = append(errs, fmt.Errorf("label %s: %q: %w", LabelPublish, part, err))
		}
		w.Publishes = append(w.Publishes, p)
	}
	return w, errors.Join(errs...)
}
