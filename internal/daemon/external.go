package daemon

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// Dead external endpoints.
//
// A container engine asks for an external endpoint when it starts a container,
// and takes it back when the container ends. It cannot take back anything while
// either daemon is down, so the daemon also finds out by itself:
//
//	namespace at the endpoint's path?  process in it?    the endpoint is
//	yes                                yes               alive
//	yes                                no, but there was dead
//	no, but there was                                    dead
//	never seen                         engine has ended  dead
//	never seen                         engine runs       starting, for startLimit
//
// The engine's mount keeps a namespace after its last process has ended, so a
// namespace alone proves nothing; a paused or slow container has processes. Of
// an engine in a PID namespace that the daemon cannot see, processes are not
// seen either: then only the namespace counts.
//
// What was seen is stored (Attachment.Namespace), because it must be known to
// the next daemon.

// startLimit is how long an engine may take from joining an endpoint to the
// container's first process. A conflicting endpoint replaces one that an earlier
// daemon knew before that.
const startLimit = 2 * time.Minute

// externalState is what becomes of an external endpoint.
type externalState int

const (
	externalAlive externalState = iota
	// externalStarting has no sandbox yet.
	externalStarting
	externalDead
)

// external is the sandbox of an external endpoint.
type external struct {
	// since is when this process first knew the endpoint, and joined says that
	// the endpoint was joined in its lifetime.
	since  time.Time
	joined bool
	// inode is that of the namespace, zero while it was not seen.
	inode sandbox.Inode
	// process is one in the namespace that is watched, nil if there is none.
	process *watched
	timer   *time.Timer
}

// watched is a process whose end is reported.
type watched struct {
	ended atomic.Bool
	stop  context.CancelFunc
}

// processScan finds processes by namespaces, with at most one pass over /proc.
type processScan struct {
	done bool
	err  error
	all  map[sandbox.Inode]int
}

// process returns one in the namespace, 0 if there is none, and whether that is
// certain.
func (s *processScan) process(of sandbox.Inode) (pid int, certain bool) {
	if !s.done {
		s.all, s.err = sandbox.Occupants()
		s.done = true
	}
	return s.all[of], s.err == nil
}

// isExternal reports whether an attachment is of an engine that makes a new one
// each time that it starts a container.
func isExternal(a model.Attachment) bool {
	return a.Origin == model.FromDocker && a.Network != HostNetwork && a.Cgroup == ""
}

// awaitExternal expects an endpoint's sandbox to come up within startLimit.
func (d *Daemon) awaitExternal(name string, joined bool) {
	if x := d.external[name]; x != nil {
		x.forget()
	}
	d.external[name] = &external{since: time.Now(), joined: joined, timer: time.AfterFunc(startLimit, d.externalChanged)}
}

func (x *external) forget() {
	x.timer.Stop()
	if x.process != nil {
		x.process.stop()
		x.process = nil
	}
}

// externalChanged has Run look for dead external endpoints.
func (d *Daemon) externalChanged() {
	select {
	case d.checkExternal <- struct{}{}:
	default: // it will
	}
}

// forgetExternal drops what is known of endpoints that exist no more.
func (d *Daemon) forgetExternal() {
	exists := map[string]bool{}
	for _, a := range d.desired.Attachments {
		exists[a.Name] = isExternal(a)
	}
	for name, x := range d.external {
		if !exists[name] {
			x.forget()
			delete(d.external, name)
		}
	}
}

// externalState finds out whether an external endpoint lives.
func (d *Daemon) externalState(a model.Attachment, scan *processScan) externalState {
	x := d.external[a.Name]
	if x == nil {
		x = &external{since: time.Now(), timer: time.AfterFunc(startLimit, d.externalChanged)}
		d.external[a.Name] = x
	}
	path := sandboxPath(a)
	at, err := sandbox.NamespaceAt(path)
	switch {
	case path == "" || err != nil:
		return x.unseen(a, a.Namespace != "" || x.inode != sandbox.Inode{})
	case x.inode == sandbox.Inode{}:
		if now, err := kernel.Identify(path); a.Namespace != "" && (err != nil || now != a.Namespace) {
			return externalDead
		}
		x.inode = at
	case x.inode != at:
		return externalDead
	}
	if x.process != nil && !x.process.ended.Load() {
		return externalAlive
	}
	pid, certain := scan.process(at)
	switch {
	case pid != 0:
		x.process = d.watchProcess(pid, at)
		return externalAlive
	case x.process != nil, a.Namespace != "" && !a.Keep: // a device comes before the processes
		return externalDead
	case !certain, a.Engine == "":
		return externalAlive // its processes may be ones that cannot be seen
	}
	return x.unseen(a, false)
}

// unseen returns the state of an endpoint whose sandbox is not there now.
func (x *external) unseen(a model.Attachment, was bool) externalState {
	switch {
	case was, a.Engine != "" && !sandbox.Runs(a.Engine):
		return externalDead
	case sandboxPath(a) == "", time.Since(x.since) < startLimit:
		return externalStarting // what was only reserved has neither link nor ports
	}
	return externalDead
}

// sandboxPath is where the sandbox of an external endpoint is, or will be; empty
// if the endpoint was only reserved.
func sandboxPath(a model.Attachment) string {
	if a.Sandbox != "" || !a.Keep {
		return a.Sandbox
	}
	return strings.TrimPrefix(a.Ref, "path:")
}

// watchProcess reports the end of a process of a namespace; it returns nil if
// the process has ended already.
func (d *Daemon) watchProcess(pid int, in sandbox.Inode) *watched {
	ctx, cancel := context.WithCancel(d.life)
	w := &watched{stop: cancel}
	err := whenEnded(ctx, pid, func() {
		w.ended.Store(true)
		d.externalChanged()
	})
	// The pid may have become another process's before it was watched.
	if is, gone := sandbox.NamespaceAt(fmt.Sprintf("/proc/%d/ns/net", pid)); err != nil || gone != nil || is != in {
		w.ended.Store(true)
		d.externalChanged()
	}
	return w
}

// recordExternal stores which sandboxes of external endpoints were seen with a
// process in them.
func (d *Daemon) recordExternal() {
	next, changed := d.desired.Clone(), false
	var scan processScan
	for i, a := range next.Attachments {
		if !isExternal(a) || a.Sandbox == "" || a.Namespace != "" || d.externalState(a, &scan) != externalAlive || d.external[a.Name].process == nil {
			continue
		}
		if id, err := kernel.Identify(a.Sandbox); err == nil {
			next.Attachments[i].Namespace, changed = id, true
		}
	}
	if changed {
		d.warn("store the sandboxes of external endpoints", d.save(next))
	}
}

// RemoveDead removes the external endpoints whose sandboxes have ended.
func (d *Daemon) RemoveDead() { d.verify(func(*watchedSandbox) bool { return false }) }

// Displace removes an external endpoint for another that needs what it holds,
// unless the endpoint is alive or was joined in this daemon's lifetime and is
// still starting. It reports whether the endpoint is gone.
func (d *Daemon) Displace(name string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, known := d.attachment(name)
	if !known {
		return true, nil
	}
	if !isExternal(a) {
		return false, nil
	}
	var scan processScan
	switch state := d.externalState(a, &scan); {
	case state == externalAlive, state == externalStarting && d.external[name].joined:
		return false, nil
	}
	return true, d.cleanUp(map[string]bool{a.Ref: true})
}
