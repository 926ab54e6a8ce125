package daemon

import (
	"context"

	"fairlead/internal/sandbox"
)

// verify checks whether suspects have ended, and removes what belonged to them.
func (d *Daemon) verify(suspect func(*watchedSandbox) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sandboxes.recordExternal()
	dead := d.sandboxes.deadAmong(d.desired, suspect)
	if len(dead) == 0 {
		return
	}
	if err := d.cleanUp(dead); err != nil {
		d.cfg.Log.Error("remove what belonged to a sandbox", "error", err)
	}
}

// restore applies waiting attachments whose sandboxes run again.
func (d *Daemon) restore(ctx context.Context) {
	for _, ref := range d.sandboxes.awaited() {
		at, err := d.cfg.Sandboxes.Resolve(ctx, ref)
		if err == nil {
			d.reattach(at)
		}
	}
}

// reattach applies the waiting attachments of a sandbox, one by one.
func (d *Daemon) reattach(at sandbox.Sandbox) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b, _, err := d.sandboxes.inspect(at)
	if err != nil {
		return // it has ended again; another event will follow
	}
	d.sandboxes.watch(b, at)
	for _, a := range d.desired.Attachments {
		if a.Ref != at.Ref || a.Sandbox != "" {
			continue
		}
		delete(d.problems, a.Name)
		d.sandboxes.arrive(&a, at)
		a.Sandbox, a.Namespace = b.path, b.namespace
		if err := d.settle(d.desired.WithAttachment(a)); err != nil {
			d.problem(a.Name, err)
			continue
		}
		d.cfg.Log.Info("sandbox is back", "sandbox", at.Ref, "attachment", a.Name)
	}
	d.sandboxes.forgetUnused()
	d.clients.startAll()
}
