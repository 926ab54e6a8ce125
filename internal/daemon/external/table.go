package external

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"fairlead/internal/alarm"
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

// State is the state of an external endpoint.
type State int

// The states.
const (
	Alive State = iota
	// Starting is an endpoint whose sandbox does not exist yet.
	Starting
	Dead
)

// Table has what is known of the sandboxes of external endpoints. The methods are not
// safe for concurrent use.
type Table struct {
	life    context.Context
	changed alarm.Signal
	all     map[string]*endpoint
}

// NewTable returns an empty table. Its watches of processes end with life.
func NewTable(life context.Context) *Table {
	return &Table{life: life, changed: alarm.NewSignal(), all: map[string]*endpoint{}}
}

// Changed returns a channel that receives a value when an endpoint may be dead.
func (t *Table) Changed() <-chan struct{} { return t.changed }

// endpoint is the sandbox of an external endpoint.
type endpoint struct {
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

// Await starts the time limit startLimit for an endpoint's sandbox. joined says that the
// endpoint was joined during this process's lifetime.
func (t *Table) Await(name string, joined bool) {
	if x := t.all[name]; x != nil {
		x.forget()
	}
	t.all[name] = t.known(joined)
}

func (t *Table) known(joined bool) *endpoint {
	return &endpoint{since: time.Now(), joined: joined, timer: time.AfterFunc(startLimit, t.changed.Send)}
}

func (x *endpoint) forget() {
	x.timer.Stop()
	if x.process != nil {
		x.process.stop()
		x.process = nil
	}
}

// Keep deletes the state of endpoints that are not among the attachments.
func (t *Table) Keep(attachments []model.Attachment) {
	exists := map[string]bool{}
	for _, a := range attachments {
		exists[a.Name] = Is(a)
	}
	for name, x := range t.all {
		if !exists[name] {
			x.forget()
			delete(t.all, name)
		}
	}
}

// State returns the state of an external endpoint.
func (t *Table) State(a model.Attachment, scan *Scan) State {
	x := t.all[a.Name]
	if x == nil {
		x = t.known(false)
		t.all[a.Name] = x
	}
	path := SandboxPath(a)
	at, err := sandbox.NamespaceAt(path)
	switch {
	case path == "" || err != nil:
		return x.unseen(a, a.Namespace != "" || x.inode != sandbox.Inode{})
	case x.inode == sandbox.Inode{}:
		if now, err := netns.Identify(path); a.Namespace != "" && (err != nil || now != a.Namespace) {
			return Dead
		}
		x.inode = at
	case x.inode != at:
		return Dead
	}
	if x.process != nil && !x.process.ended.Load() {
		return Alive
	}
	pid, certain := scan.Process(at)
	switch {
	case pid != 0:
		x.process = t.watchProcess(pid, at)
		return Alive
	case x.process != nil, a.Namespace != "" && !a.Keep: // a device comes before the processes
		return Dead
	case !certain, a.Engine == "":
		return Alive // it may have processes that the daemon cannot see
	}
	return x.unseen(a, false)
}

// unseen returns the state of an endpoint whose sandbox does not exist now. seen says
// whether it existed earlier.
func (x *endpoint) unseen(a model.Attachment, seen bool) State {
	switch {
	case seen, a.Engine != "" && !sandbox.Runs(a.Engine):
		return Dead
	case SandboxPath(a) == "", time.Since(x.since) < startLimit:
		return Starting // an endpoint that was only reserved has no link and no ports
	}
	return Dead
}

// watchProcess watches a process of a namespace, and reports its end. The process may
// have ended already.
func (t *Table) watchProcess(pid int, in sandbox.Inode) *watched {
	ctx, cancel := context.WithCancel(t.life)
	w := &watched{stop: cancel}
	err := sandbox.WhenEnded(ctx, pid, func() {
		w.ended.Store(true)
		t.changed.Send()
	})
	// Another process may have got the PID before the watch began.
	if is, gone := sandbox.NamespaceAt(fmt.Sprintf("/proc/%d/ns/net", pid)); err != nil || gone != nil || is != in {
		w.ended.Store(true)
		t.changed.Send()
	}
	return w
}

// Seen reports whether the endpoint is alive and a process was seen in its sandbox.
func (t *Table) Seen(a model.Attachment, scan *Scan) bool {
	return t.State(a, scan) == Alive && t.all[a.Name].process != nil
}

// Displaceable reports whether an endpoint may be removed because another one needs its
// resources: it is not alive, and is not starting after a join during this process's
// lifetime.
func (t *Table) Displaceable(a model.Attachment, scan *Scan) bool {
	state := t.State(a, scan)
	return state == Dead || state == Starting && !t.all[a.Name].joined
}

// Reserved returns the external endpoint without its sandbox.
func Reserved(a model.Attachment) model.Attachment {
	a.Ref, a.Keep, a.Sandbox, a.Namespace = "docker:"+a.Name, false, "", ""
	return a
}
