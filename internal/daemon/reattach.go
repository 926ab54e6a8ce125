package daemon

import (
	"context"

	"fairlead/internal/sandbox"
)

// verify checks whether suspects have ended, and removes what belonged to them.
func (ap *applier) verify(suspect func(*watchedSandbox) bool) {
	ap.mu.Lock()
	defer ap.mu.Unlock()
	ap.sandboxes.recordExternal()
	dead := ap.sandboxes.deadAmong(ap.desired, suspect)
	if len(dead) == 0 {
		return
	}
	if err := ap.cleanUp(dead); err != nil {
		ap.cfg.Log.Error("remove what belonged to a sandbox", "error", err)
	}
}

// restore applies waiting attachments whose sandboxes run again.
func (ap *applier) restore(ctx context.Context) {
	for _, ref := range ap.sandboxes.awaited() {
		at, err := ap.cfg.Sandboxes.Resolve(ctx, ref)
		if err == nil {
			ap.reattach(at)
		}
	}
}

// reattach applies the waiting attachments of a sandbox, one by one.
func (ap *applier) reattach(at sandbox.Sandbox) {
	ap.mu.Lock()
	defer ap.mu.Unlock()
	b, _, err := ap.sandboxes.inspect(at)
	if err != nil {
		return // it has ended again; another event will follow
	}
	ap.sandboxes.watch(b, at)
	for _, a := range ap.desired.Attachments {
		if a.Ref != at.Ref || a.Sandbox != "" {
			continue
		}
		delete(ap.problems, a.Name)
		ap.sandboxes.arrive(&a, at)
		a.Sandbox, a.Namespace = b.path, b.namespace
		if err := ap.settle(ap.desired.WithAttachment(a)); err != nil {
			ap.problem(a.Name, err)
			continue
		}
		ap.cfg.Log.Info("sandbox is back", "sandbox", at.Ref, "attachment", a.Name)
	}
	ap.sandboxes.forgetUnused()
	ap.clients.startAll()
}
