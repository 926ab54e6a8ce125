package daemon

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"fairlead/internal/daemon/external"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// Dead external endpoints.
//
// A container engine requests an external endpoint when it starts a container, and
// removes it when the container ends. It cannot do that while either daemon is
// down, so the daemon also detects dead endpoints itself:
//
//	namespace at the endpoint's path?  process in it?    the endpoint is
//	yes                                yes               alive
//	yes                                no, but earlier   dead
//	no, but earlier                                      dead
//	never seen                         engine has ended  dead
//	never seen                         engine runs       starting, for startLimit
//
// The engine's mount keeps a namespace after its last process has ended, so a
// namespace alone proves nothing; a paused or slow container has processes. If the
// engine is in a PID namespace that the daemon cannot see, the daemon cannot see the
// processes either: then only the namespace counts.
//
// The daemon stores which namespace it has seen (Attachment.Namespace), for the next
// daemon process.

// startLimit is how long an engine may take from joining an endpoint to the first
// process of the container. Displace does not wait that long for an endpoint that was
// joined before this daemon process started.
const startLimit = 2 * time.Minute

// externalState is the state of an external endpoint.
type externalState int

const (
	externalAlive externalState = iota
	// externalStarting is an endpoint whose sandbox does not exist yet.
	externalStarting
	externalDead
)

// externalSandbox is the sandbox of an external endpoint.
type externalSandbox struct {
	// since is when this process first knew the endpoint. joined says that the
	// endpoint was joined during this process's lifetime.
	since  time.Time
	joined bool
	// inode identifies the namespace. It is zero until the namespace was seen.
	inode sandbox.Inode
	// process is a watched process in the namespace, or nil.
	process *watched
	timer   *time.Timer
}

// watched is a process whose end is reported.
type watched struct {
	ended atomic.Bool
	stop  context.CancelFunc
}

// awaitExternal starts the time limit startLimit for an endpoint's sandbox.
func (d *Daemon) awaitExternal(name string, joined bool) {
	if x := d.external[name]; x != nil {
		x.forget()
	}
	d.external[name] = &externalSandbox{since: time.Now(), joined: joined, timer: time.AfterFunc(startLimit, d.externalChanged)}
}

func (x *externalSandbox) forget() {
	x.timer.Stop()
	if x.process != nil {
		x.process.stop()
		x.process = nil
	}
}

// externalChanged makes Run check for dead external endpoints.
func (d *Daemon) externalChanged() {
	select {
	case d.checkExternal <- struct{}{}:
	default: // a check is already pending
	}
}

// forgetExternal deletes the state of endpoints that no longer exist.
func (d *Daemon) forgetExternal() {
	exists := map[string]bool{}
	for _, a := range d.desired.Attachments {
		exists[a.Name] = external.Is(a)
	}
	for name, x := range d.external {
		if !exists[name] {
			x.forget()
			delete(d.external, name)
		}
	}
}

// externalState returns the state of an external endpoint.
func (d *Daemon) externalState(a model.Attachment, scan *external.Scan) externalState {
	x := d.external[a.Name]
	if x == nil {
		x = &externalSandbox{since: time.Now(), timer: time.AfterFunc(startLimit, d.externalChanged)}
		d.external[a.Name] = x
	}
	path := external.SandboxPath(a)
	at, err := sandbox.NamespaceAt(path)
	switch {
	case path == "" || err != nil:
		return x.unseen(a, a.Namespace != "" || x.inode != sandbox.Inode{})
	case x.inode == sandbox.Inode{}:
		if now, err := netns.Identify(path); a.Namespace != "" && (err != nil || now != a.Namespace) {
			return externalDead
		}
		x.inode = at
	case x.inode != at:
		return externalDead
	}
	if x.process != nil && !x.process.ended.Load() {
		return externalAlive
	}
	pid, certain := scan.Process(at)
	switch {
	case pid != 0:
		x.process = d.watchProcess(pid, at)
		return externalAlive
	case x.process != nil, a.Namespace != "" && !a.Keep: // a device comes before the processes
		return externalDead
	case !certain, a.Engine == "":
		return externalAlive // it may have processes that the daemon cannot see
	}
	return x.unseen(a, false)
}

// unseen returns the state of an endpoint whose sandbox does not exist now. seen says
// whether it existed earlier.
func (x *externalSandbox) unseen(a model.Attachment, seen bool) externalState {
	switch {
	case seen, a.Engine != "" && !sandbox.Runs(a.Engine):
		return externalDead
	case external.SandboxPath(a) == "", time.Since(x.since) < startLimit:
		return externalStarting // an endpoint that was only reserved has no link and no ports
	}
	return externalDead
}

// watchProcess watches a process of a namespace, and reports its end. The process may
// have ended already.
func (d *Daemon) watchProcess(pid int, in sandbox.Inode) *watched {
	ctx, cancel := context.WithCancel(d.life)
	w := &watched{stop: cancel}
	err := whenEnded(ctx, pid, func() {
		w.ended.Store(true)
		d.externalChanged()
	})
	// Another process may have got the PID before the watch began.
	if is, gone := sandbox.NamespaceAt(fmt.Sprintf("/proc/%d/ns/net", pid)); err != nil || gone != nil || is != in {
		w.ended.Store(true)
		d.externalChanged()
	}
	return w
}

// recordExternal stores the namespaces of external endpoints that were seen with a
// process.
func (d *Daemon) recordExternal() {
	next, changed := d.desired.Clone(), false
	var scan external.Scan
	for i, a := range next.Attachments {
		if !external.Is(a) || a.Sandbox == "" || a.Namespace != "" || d.externalState(a, &scan) != externalAlive || d.external[a.Name].process == nil {
			continue
		}
		if id, err := netns.Identify(a.Sandbox); err == nil {
			next.Attachments[i].Namespace, changed = id, true
		}
	}
	if changed {
		d.warn("store the sandboxes of external endpoints", d.save(next))
	}
}

// RemoveDead removes the external endpoints whose sandboxes have ended.
func (d *Daemon) RemoveDead() { d.verify(func(*watchedSandbox) bool { return false }) }

// Displace removes an external endpoint because another one needs its resources,
// unless the endpoint is alive, or was joined during this process's lifetime and is
// still starting. It reports whether the endpoint no longer exists. If it reports true
// with an error, the endpoint is removed from the desired state but not from the host.
func (d *Daemon) Displace(name string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, known := d.desired.Attachment(name)
	if !known {
		return true, nil
	}
	if !external.Is(a) {
		return false, nil
	}
	var scan external.Scan
	switch state := d.externalState(a, &scan); {
	case state == externalAlive, state == externalStarting && d.external[name].joined:
		return false, nil
	}
	return true, d.cleanUp(map[string]bool{a.Ref: true})
}
