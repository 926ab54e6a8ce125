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

	"fairlead/internal/api"
	"fairlead/internal/dockerapi"
	"fairlead/internal/model"
	"fairlead/internal/recovery"
	"fairlead/internal/sandbox"
	"fairlead/internal/syntax"
)

// The labels of a container on the host's network: the ports to publish, and the
// policy for binds to other ports, as in `fairlead run`.
const (
	LabelPublish     = "fairlead.publish"
	LabelUnpublished = "fairlead.unpublished"
)

// Workloads is the part of the daemon that Labels calls. *daemon.Daemon implements
// it.
type Workloads interface {
	Admit(api.Workload) (changed bool, err error)
	Dismiss(name string) error
	NeedsRestart(name string) (needs, certain bool, err error)
	Attachments() []api.View
}

// Engine is a container engine. sandbox.Engine implements it.
type Engine interface {
	Labelled(ctx context.Context, label, id string) ([]sandbox.Labelled, error)
	FollowLabelled(ctx context.Context, label string, ready func(), notify func(*dockerapi.Event)) error
	CgroupOf(ctx context.Context, id string) (string, error)
	RestartByPolicy(ctx context.Context, id string) (bool, error)
	Watch(context.Context) (<-chan struct{}, error)
}

// Labels publishes the ports of containers on the host's network according to their
// labels.
//
// Theory of operation. A container's process binds its ports before the engine
// reports the container's start. Therefore eBPF programs are attached to the
// container's cgroup when the cgroup is created, which inotify reports. The labels
// are known by then, or being requested, because the engine has reported the
// container's creation. The runtime creates the cgroup before it moves a process
// into it. An empty cgroup is frozen until the programs are attached, and the
// runtime waits meanwhile. On a busy host the runtime can be faster. It still has to
// start the container's process then, and in most cases the programs are attached
// before that process binds a port. When an engine starts, it starts its containers
// before it answers requests. So notes about the containers survive a reboot, and the
// cgroups of those that ran are created, with the programs, before the engine starts.
// For containers that were missed, and for those that run when the daemon starts, the
// engine returns the cgroup. Their sockets show whether they bound ports before the
// programs were attached.
//
// The goroutines that read from the engine and from inotify must not block.
// Therefore one worker does what takes time, in order.
type Labels struct {
	Workloads Workloads
	Engine    Engine
	// Lasting notes survive a reboot, and passing ones do not.
	Lasting, Passing Notes
	// Root is where cgroup v2 is mounted.
	Root string
	Log  *slog.Logger

	// life ends with Run.
	life context.Context
	work *jobs
	// all counts the goroutines that send jobs to the worker.
	all sync.WaitGroup

	// noting protects the notes between a read and a write.
	noting sync.Mutex

	mu    sync.Mutex
	known map[string]sandbox.Labelled
	// announced has the containers whose labels are being requested, with their
	// frozen cgroups.
	announced map[string]*frozen
	// prepared has the cgroups that this process has created.
	prepared map[string]bool
	where    *groups
}

// Run follows the engine and the cgroups until ctx ends.
func (l *Labels) Run(ctx context.Context) (err error) {
	l.known, l.announced, l.work = map[string]sandbox.Labelled{}, map[string]*frozen{}, newJobs()
	l.prepared, l.life = map[string]bool{}, ctx
	if l.where, err = watchGroups(l.Root); err != nil {
		return fmt.Errorf("watch for containers' cgroups: %w", err)
	}
	defer l.where.close()
	changed, err := l.Engine.Watch(ctx)
	if err != nil {
		return err
	}
	l.recall()
	l.all.Go(func() { l.follow(ctx, changed) })
	l.all.Go(l.readGroups)
	for {
		select {
		case <-ctx.Done():
			l.where.end()
			l.all.Wait()
			l.run(ctx)
			return nil
		case <-l.work.added:
			l.run(ctx)
		}
	}
}

// run does the jobs that wait. After the end of ctx it drops them.
func (l *Labels) run(ctx context.Context) {
	for _, j := range l.work.take() {
		if ctx.Err() == nil {
			l.careful("job for a container", j.do)
		}
		j.frozen.end()
	}
}

// careful does one thing for one container. If it panics, the others go on: mu protects maps by container, and each of
// their entries is complete in itself.
func (l *Labels) careful(what string, do func()) { l.warn(what, recovery.Object(what, do)) }

// readGroups reads inotify events until end is called. It must be faster than a
// container runtime and has little work, so its thread gets a high priority.
func (l *Labels) readGroups() {
	runtime.LockOSThread() // the thread ends with this goroutine
	raisePriority()
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
			l.groupChanged(g)
		}
		l.mu.Unlock()
		l.warn("watch for containers' cgroups", err)
	}
}

// follow follows the engine's events. It tries again whenever the engine may have
// started.
func (l *Labels) follow(ctx context.Context, changed <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		_ = l.Engine.FollowLabelled(ctx, LabelPublish, func() { l.sync(ctx) }, func(h *dockerapi.Event) {
			l.careful("event of container "+h.Actor.ID, func() { l.handleEvent(ctx, h) })
		})
	}
}

// sync reads all containers, because the engine does not report past events.
func (l *Labels) sync(ctx context.Context) {
	running := map[string]bool{}
	for _, c := range l.learn(ctx, "") {
		running[attachmentOf(c.ID)] = c.Running
		if c.Running {
			l.later(func() { l.started(ctx, c) })
			l.later(func() { l.restartEarly(c) }) // it may have been admitted before the engine answered
		}
	}
	l.unprepare()
	for _, a := range l.Workloads.Attachments() {
		// A container whose cgroup exists runs, or is about to run.
		if a.Network == api.HostNetwork && a.Cgroup == "" && !running[a.Name] {
			l.warn("remove an ended container's ports", l.Workloads.Dismiss(a.Name))
		}
	}
}

// later gives the worker a job.
func (l *Labels) later(do func()) { l.work.add(job{do: do}) }

// announce keeps a container's cgroup frozen until the container's labels are known.
func (l *Labels) announce(ctx context.Context, id string) {
	l.mu.Lock()
	l.announced[id] = nil
	l.mu.Unlock()
	l.learn(ctx, id)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.announced[id].end() // the container has no such label
	delete(l.announced, id)
}

// learn requests the labels of a container, or of all containers if id is empty, and
// handles their cgroups that exist already.
func (l *Labels) learn(ctx context.Context, id string) []sandbox.Labelled {
	all, err := l.Engine.Labelled(ctx, LabelPublish, id)
	l.warn("list containers by their labels", err)
	if err == nil {
		l.note(all, id == "")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range all {
		l.meet(c, func(string) bool { return c.Starting })
	}
	return all
}

// meet records a container and handles its cgroups that exist already. It thaws those
// for which starting returns true: a daemon that was killed may have frozen them. The
// caller must have locked l.mu.
func (l *Labels) meet(c sandbox.Labelled, starting func(path string) bool) {
	l.known[c.ID] = c
	for _, g := range l.where.find(c.ID) {
		thaws := starting(g.path)
		l.groupChanged(g)
		if thaws {
			l.work.add(job{func() {}, thawLater(g.path)})
		}
	}
}

// handleEvent handles an event of the engine.
func (l *Labels) handleEvent(ctx context.Context, h *dockerapi.Event) {
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
		l.forget(h.Actor.ID)
		l.later(func() { l.ended(h.Actor.ID) })
	case "die":
		l.later(func() { l.ended(h.Actor.ID) })
	}
}

// groupChanged handles a container's cgroup that was created, found or removed. The
// caller must have locked l.mu.
func (l *Labels) groupChanged(g group) {
	c, known := l.known[g.id]
	f, announced := l.announced[g.id]
	if f == nil && !g.gone && !l.prepared[g.path] && (announced || known && c.HostNetwork) {
		f = freeze(g.path)
	}
	switch {
	case g.gone:
		l.later(func() { l.ended(g.id) })
	case known && c.HostNetwork:
		delete(l.announced, g.id)
		l.work.add(job{func() { l.admit(c, g.path, nil, f) }, f})
	case announced:
		l.announced[g.id] = f
	}
}

// started finds the cgroup of a running container, unless it is known. The worker
// must not wait for the engine: the engine may not answer before a container has
// started whose cgroup is frozen until the worker handles it.
func (l *Labels) started(ctx context.Context, c sandbox.Labelled) {
	if !c.HostNetwork {
		l.Log.Warn("publish by a label", "container", c.Name, "error", "it is not on the host's network: publish "+
			"its ports with `docker run -p`")
		return
	}
	if l.hasGroup(c.ID) {
		return
	}
	l.all.Go(func() {
		path, err := l.Engine.CgroupOf(ctx, c.ID)
		l.later(func() { l.found(c, path, err) })
	})
}

// found handles the engine's answer with the cgroup of a container. The cgroup may
// have become known meanwhile.
func (l *Labels) found(c sandbox.Labelled, path string, err error) {
	if l.hasGroup(c.ID) {
		return
	}
	switch {
	case errors.Is(err, sandbox.ErrAbsent), errors.Is(err, os.ErrNotExist):
		return // it has ended
	case err == nil && !strings.Contains(path, c.ID):
		err = fmt.Errorf("the container has no cgroup v2 of its own, it is in %s: boot with "+
			"systemd.unified_cgroup_hierarchy=1", path)
	case err == nil:
		path = filepath.Join(l.Root, path)
		l.mu.Lock()
		l.warn("watch for containers' cgroups", l.where.watch(filepath.Dir(path)))
		l.mu.Unlock()
	}
	l.admit(c, path, err, nil)
}

// hasGroup reports whether the container's cgroup exists in a watched directory.
func (l *Labels) hasGroup(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.where.find(id)) > 0
}

// admit publishes the ports that the labels request. It logs a warning if a process
// in the cgroup bound ports before that.
func (l *Labels) admit(c sandbox.Labelled, path string, wrong error, f *frozen) {
	w, err := workload(c)
	w.Cgroup, w.Wrong = path, errors.Join(wrong, err)
	changed, err := l.Workloads.Admit(w)
	inTime := f.end()
	if wrong == nil {
		l.noteRun(c.ID, path, true)
	}
	if err != nil {
		l.Log.Warn("publish by a label", "container", c.Name, "error", err)
		return
	}
	if !changed || inTime || !populated(path) {
		return
	}
	needsRestart, _, err := l.Workloads.NeedsRestart(w.Name)
	l.warn("publish by a label", err)
	if needsRestart {
		l.Log.Warn("publish by a label", "container", c.Name, "error", "it bound ports before they were published: "+
			"these ports are not mapped: restart the container")
		l.restartEarly(c)
	}
}

// ended removes an ended container's ports, unless the container runs again.
func (l *Labels) ended(id string) {
	name, runs := attachmentOf(id), false
	for _, a := range l.Workloads.Attachments() {
		if a.Name != name || a.Network != api.HostNetwork {
			continue
		}
		if _, err := os.Stat(a.Cgroup); a.Cgroup != "" && err == nil {
			runs = true
			continue
		}
		l.warn("remove an ended container's ports", l.Workloads.Dismiss(name))
	}
	if !runs {
		l.noteRun(id, "", false)
	}
}

func (l *Labels) warn(what string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		l.Log.Warn(what, "error", err)
	}
}

func attachmentOf(id string) string { return "docker-" + id[:min(short, len(id))] }

// workload converts a container's labels. It returns the ports without mistakes
// also if others have mistakes.
func workload(c sandbox.Labelled) (api.Workload, error) {
	w := api.Workload{Name: attachmentOf(c.ID), Ref: string(sandbox.Container) + ":" + c.Name,
		Unpublished: model.Unpublished(c.Labels[LabelUnpublished])}
	var errs []error
	for part := range strings.SplitSeq(c.Labels[LabelPublish], ",") {
		p, err := syntax.Publish(strings.TrimSpace(part))
		if err != nil {
			errs = append(errs, fmt.Errorf("label %s: %q: %w", LabelPublish, part, err))
		}
		w.Publishes = append(w.Publishes, p)
	}
	return w, errors.Join(errs...)
}
