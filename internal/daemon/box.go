package daemon

import (
	"context"
	"fmt"
	"os"

	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"

	"golang.org/x/sys/unix"
)

// watchedSandbox is a living sandbox that is attached.
type watchedSandbox struct {
	ref, path string
	// namespace is what kernel.Identify said when it was attached.
	namespace string
	// id is what the host calls it.
	id int
	// file is the inode at path.
	dev, ino uint64
	// forget ends the watch of its process.
	forget context.CancelFunc
}

// moved reports whether something else is at the path of the sandbox now. It
// is quick, and blind to another namespace that has got the inode number: of
// that the kernel tells.
func (b *watchedSandbox) moved() bool {
	var st unix.Stat_t
	return unix.Stat(b.path, &st) != nil || st.Dev != b.dev || st.Ino != b.ino
}

// gone reports whether the sandbox that was attached is at its path no more.
func (b *watchedSandbox) gone() bool {
	now, err := kernel.Identify(b.path)
	return err != nil || now != b.namespace
}

// know returns the box of a sandbox, and looks into it; at is where it was
// found.
func (d *Daemon) know(at sandbox.Sandbox) (*watchedSandbox, kernel.Sandbox, error) {
	seen, err := d.cfg.Host.DescribeSandbox(at.Path)
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

// hold watches the sandbox from now on.
func (d *Daemon) hold(b *watchedSandbox, at sandbox.Sandbox) {
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
	err := whenEnded(ctx, at.PID, func() {
		select {
		case d.inspect <- b.ref:
		case <-ctx.Done():
		}
	})
	if err != nil {
		d.cfg.Log.Error("watch a sandbox", "sandbox", b.ref, "error", err)
	}
}

// enter holds the sandbox of an attachment that an earlier process has made,
// if it is there still.
func (d *Daemon) enter(a model.Attachment) {
	if d.watched[a.Ref] != nil {
		return
	}
	at := sandbox.Sandbox{Ref: a.Ref, Path: a.Sandbox}
	if _, err := fmt.Sscanf(a.Sandbox, "/proc/%d/ns/net", &at.PID); err != nil {
		at.PID = 0 // it is no process's
	}
	b, seen, err := d.know(at)
	if err == nil && seen.Namespace == a.Namespace {
		d.hold(b, at)
	}
}

// forget lets go of sandboxes that nothing is attached to.
func (d *Daemon) forget() {
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
	d.forgetExternal()
}

// dead returns the references of the attached sandboxes that are gone.
func (d *Daemon) dead(w model.Desired) map[string]bool {
	return d.deadAmong(w, func(*watchedSandbox) bool { return true })
}

func (d *Daemon) deadAmong(w model.Desired, suspect func(*watchedSandbox) bool) map[string]bool {
	dead := map[string]bool{}
	inspected := map[string]bool{}
	var scan processScan
	for _, a := range w.Attachments {
		if groupGone(a) || isExternal(a) && d.externalState(a, &scan) == externalDead {
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

// verify looks whether suspects are gone, and takes away what was theirs.
func (d *Daemon) verify(suspect func(*watchedSandbox) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.recordExternal()
	dead := d.deadAmong(d.desired, suspect)
	if len(dead) == 0 {
		return
	}
	if err := d.cleanUp(dead); err != nil {
		d.cfg.Log.Error("take away what was a sandbox's", "error", err)
	}
}

// restore applies kept attachments whose sandboxes have come back.
func (d *Daemon) restore(ctx context.Context) {
	for _, ref := range d.awaited() {
		at, err := d.cfg.Sandboxes.Resolve(ctx, ref)
		if err == nil {
			d.comeBack(at)
		}
	}
}

// awaited returns the references of sandboxes that are waited for.
func (d *Daemon) awaited() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var refs []string
	seen := map[string]bool{}
	for _, a := range d.desired.Attachments {
		if a.Sandbox == "" && a.HostInterface == "" && a.Network != HostNetwork && !seen[a.Ref] {
			seen[a.Ref] = true
			refs = append(refs, a.Ref)
		}
	}
	return refs
}

// comeBack applies the kept attachments of a sandbox, each by itself.
func (d *Daemon) comeBack(at sandbox.Sandbox) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b, _, err := d.know(at)
	if err != nil {
		return // it is gone again; then we are told
	}
	d.hold(b, at)
	for _, a := range d.desired.Attachments {
		if a.Ref != at.Ref || a.Sandbox != "" {
			continue
		}
		delete(d.problems, a.Name)
		d.arrive(&a, at)
		a.Sandbox, a.Namespace = b.path, b.namespace
		if err := d.settle(with(d.desired, a)); err != nil {
			d.problem(a.Name, err)
			continue
		}
		d.cfg.Log.Info("sandbox is back", "sandbox", at.Ref, "attachment", a.Name)
	}
	d.forget()
	d.startClients()
}
