package daemon

import (
	"context"
	"fmt"
	"os"

	"fairlead/internal/api"
	"fairlead/internal/daemon/external"
	"fairlead/internal/daemon/spec"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"

	"golang.org/x/sys/unix"
)

// watchedSandbox is a running sandbox that is attached.
type watchedSandbox struct {
	ref, path string
	// namespace is the result of netns.Identify when the sandbox was attached.
	namespace string
	// id is the host's ID of the namespace (nsid).
	id int
	// dev and ino identify the file at path.
	dev, ino uint64
	// forget ends the watch of the sandbox's process.
	forget context.CancelFunc
}

// moved reports whether another file is at the path of the sandbox now. It is fast,
// but does not detect another namespace that got the same inode number; the kernel
// reports the end of the first one.
func (b *watchedSandbox) moved() bool {
	var st unix.Stat_t
	return unix.Stat(b.path, &st) != nil || st.Dev != b.dev || st.Ino != b.ino
}

// gone reports whether the sandbox that was attached is no longer at its path.
func (b *watchedSandbox) gone() bool {
	now, err := netns.Identify(b.path)
	return err != nil || now != b.namespace
}

// inspectSandbox returns the watchedSandbox of a sandbox, and its contents. at is
// where the sandbox was found.
func (d *Daemon) inspectSandbox(at sandbox.Sandbox) (*watchedSandbox, inspect.Sandbox, error) {
	seen, err := d.cfg.Counters.Inspect().DescribeSandbox(at.Path)
	if err != nil {
		return nil, seen, err
	}
	if b := d.watched[at.Ref]; b != nil && b.namespace == seen.Namespace && b.path == at.Path {
		return b, seen, nil
	}
	b := &watchedSandbox{ref: at.Ref, path: at.Path, namespace: seen.Namespace, id: seen.ID}
	var st unix.Stat_t
	if err := unix.Stat(at.Path, &st); err != nil {
		return nil, seen, &os.PathError{Op: "stat", Path: at.Path, Err: err}
	}
	b.dev, b.ino = st.Dev, st.Ino
	return b, seen, nil
}

// watch starts to watch the sandbox, unless it is already watched.
func (d *Daemon) watch(b *watchedSandbox, at sandbox.Sandbox) {
	if d.watched[b.ref] == b {
		return
	}
	if old := d.watched[b.ref]; old != nil {
		old.forget()
	}
	ctx, cancel := context.WithCancel(d.life)
	b.forget = cancel
	d.watched[b.ref] = b
	if at.PID == 0 {
		return
	}
	err := sandbox.WhenEnded(ctx, at.PID, func() {
		select {
		case d.inspect <- b.ref:
		case <-ctx.Done():
		}
	})
	if err != nil {
		d.cfg.Log.Error("watch a sandbox", "sandbox", b.ref, "error", err)
	}
}

// adoptSandbox watches the sandbox of an attachment of an earlier process, if the
// sandbox still exists.
func (d *Daemon) adoptSandbox(a model.Attachment) {
	if d.watched[a.Ref] != nil {
		return
	}
	at := sandbox.Sandbox{Ref: a.Ref, Path: a.Sandbox}
	if _, err := fmt.Sscanf(a.Sandbox, "/proc/%d/ns/net", &at.PID); err != nil {
		at.PID = 0 // not a path of a process
	}
	b, seen, err := d.inspectSandbox(at)
	if err == nil && seen.Namespace == a.Namespace {
		d.watch(b, at)
	}
}

// forgetUnused ends the watch of sandboxes without attachments.
func (d *Daemon) forgetUnused() {
	attached := map[string]bool{}
	for _, a := range d.desired.Attachments {
		if a.Sandbox != "" {
			attached[a.Ref] = true
		}
	}
	for ref, b := range d.watched {
		if !attached[ref] {
			b.forget()
			delete(d.watched, ref)
		}
	}
	d.external.Keep(d.desired.Attachments)
}

// dead returns the references of the attached sandboxes that have ended.
func (d *Daemon) dead(w model.Desired) map[string]bool {
	return d.deadAmong(w, func(*watchedSandbox) bool { return true })
}

// deadAmong does the same as dead, but checks only the sandboxes for which suspect
// returns true. Workloads and external endpoints are always checked.
func (d *Daemon) deadAmong(w model.Desired, suspect func(*watchedSandbox) bool) map[string]bool {
	dead := map[string]bool{}
	inspected := map[string]bool{}
	var scan external.Scan
	for _, a := range w.Attachments {
		if external.CgroupGone(a) || external.Is(a) && d.external.State(a, &scan) == external.Dead {
			dead[a.Ref] = true
		}
		if a.Sandbox == "" || a.HostInterface != "" || inspected[a.Ref] {
			continue
		}
		inspected[a.Ref] = true
		b := d.watched[a.Ref]
		if b == nil || b.namespace != a.Namespace || suspect(b) && b.gone() {
			dead[a.Ref] = true
		}
	}
	return dead
}

// verify checks whether suspects have ended, and removes what belonged to them.
func (d *Daemon) verify(suspect func(*watchedSandbox) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.recordExternal()
	dead := d.deadAmong(d.desired, suspect)
	if len(dead) == 0 {
		return
	}
	if err := d.cleanUp(dead); err != nil {
		d.cfg.Log.Error("remove what belonged to a sandbox", "error", err)
	}
}

// restore applies waiting attachments whose sandboxes run again.
func (d *Daemon) restore(ctx context.Context) {
	for _, ref := range d.awaited() {
		at, err := d.cfg.Sandboxes.Resolve(ctx, ref)
		if err == nil {
			d.reattach(at)
		}
	}
}

// awaited returns the references of the sandboxes that attachments wait for.
func (d *Daemon) awaited() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var refs []string
	seen := map[string]bool{}
	for _, a := range d.desired.Attachments {
		if a.Sandbox == "" && a.HostInterface == "" && a.Network != api.HostNetwork && !seen[a.Ref] {
			seen[a.Ref] = true
			refs = append(refs, a.Ref)
		}
	}
	return refs
}

// reattach applies the waiting attachments of a sandbox, one by one.
func (d *Daemon) reattach(at sandbox.Sandbox) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b, _, err := d.inspectSandbox(at)
	if err != nil {
		return // it has ended again; another event will follow
	}
	d.watch(b, at)
	for _, a := range d.desired.Attachments {
		if a.Ref != at.Ref || a.Sandbox != "" {
			continue
		}
		delete(d.problems, a.Name)
		d.arrive(&a, at)
		a.Sandbox, a.Namespace = b.path, b.namespace
		if err := d.settle(d.desired.WithAttachment(a)); err != nil {
			d.problem(a.Name, err)
			continue
		}
		d.cfg.Log.Info("sandbox is back", "sandbox", at.Ref, "attachment", a.Name)
	}
	d.forgetUnused()
	d.startClients()
}

// arrive fills in the values of an attachment that was created before its sandbox ran.
func (d *Daemon) arrive(a *model.Attachment, at sandbox.Sandbox) {
	seen, err := d.cfg.Counters.Inspect().DescribeSandbox(at.Path)
	if err != nil {
		return // settle reports the error
	}
	notes, err := spec.Arrive(d.desired, a, contentsOf(at, seen))
	d.warn("choose the default route of "+a.Name, err)
	for _, note := range notes {
		d.cfg.Log.Info("sandbox runs for the first time", "attachment", a.Name, "note", note)
	}
}
