package daemon

import (
	"context"

	"fairlead/internal/daemon/sockets"
	"fairlead/internal/sandbox"
)

// verify checks whether suspects have ended, and removes what belonged to them.
func (ap *applier) verify(suspect func(*watchedSandbox) bool) {
	repeated := false
	ap.soon("remove what belonged to a sandbox", func() error {
		ap.sandboxes.recordExternal()
		dead := ap.sandboxes.deadAmong(ap.desired, suspect)
		if len(dead) == 0 && !repeated {
			return nil
		}
		repeated = true
		return ap.cleanUp(dead)
	})
}

// restore applies waiting attachments whose sandboxes run again.
func (ap *applier) restore(ctx context.Context) {
	for _, ref := range ap.sandboxes.awaited() {
		if at, err := ap.cfg.Sandboxes.Resolve(ctx, ref); err == nil {
			ap.soon("attach "+ref, func() error { return ap.reattach(at) })
		}
	}
}

// reattach applies the waiting attachments of a sandbox, one by one. Returns an
// engine.UnopenedError if one still waits for its ports; other errors are problems of the attachments.
func (ap *applier) reattach(at sandbox.Sandbox) error {
	b, _, err := ap.sandboxes.inspect(at)
	if err != nil {
		return nil // it has ended again; another event will follow
	}
	ap.sandboxes.watch(b, at)
	var waits error
	for _, a := range ap.desired.Attachments {
		if a.Ref != at.Ref || a.Sandbox != "" {
			continue
		}
		delete(ap.problems, a.Name)
		ap.sandboxes.arrive(&a, at)
		a.Sandbox, a.Namespace = b.path, b.namespace
		if err := ap.settle(ap.desired.WithAttachment(a)); sockets.AreUnopened(err) {
			waits = err
			continue
		} else if err != nil {
			ap.problem(a.Name, err)
			continue
		}
		ap.cfg.Log.Info("sandbox is back", "sandbox", at.Ref, "attachment", a.Name)
	}
	ap.sandboxes.forgetUnused()
	ap.startLeasing()
	return waits
}
