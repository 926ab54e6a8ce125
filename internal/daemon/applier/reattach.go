package applier

import (
	"context"

	"fairlead/internal/daemon/sockets"
	"fairlead/internal/daemon/watched"
	"fairlead/internal/sandbox"
)

// Verify checks whether suspects have ended, and removes what belonged to them. It locks
// the mutex of the state.
func (ap *Applier) Verify(suspect func(*watched.Sandbox) bool) {
	repeated := false
	ap.Steps.Soon("remove what belonged to a sandbox", func() error {
		ap.Sandboxes.RecordExternal()
		dead := ap.Sandboxes.DeadAmong(ap.State.Desired(), suspect)
		if len(dead) == 0 && !repeated {
			return nil
		}
		repeated = true
		return ap.CleanUp(dead)
	})
}

// Restore applies waiting attachments whose sandboxes run again. It locks the mutex of the state.
func (ap *Applier) Restore(ctx context.Context) {
	for _, ref := range ap.Sandboxes.Awaited() {
		if at, err := ap.Resolve(ctx, ref); err == nil {
			ap.Steps.Soon("attach "+ref, func() error { return ap.Reattach(at) })
		}
	}
}

// Reattach applies the waiting attachments of a sandbox, one by one. Returns an
// engine.UnopenedError if one still waits for its ports; other errors are problems of the attachments.
func (ap *Applier) Reattach(at sandbox.Sandbox) error {
	b, _, err := ap.Sandboxes.Inspect(at)
	if err != nil {
		return nil // it has ended again; another event will follow
	}
	ap.Sandboxes.Watch(b, at)
	var waits error
	for _, a := range ap.State.Desired().Attachments {
		if a.Ref != at.Ref || a.Sandbox != "" {
			continue
		}
		delete(ap.State.Problems, a.Name)
		ap.Sandboxes.Arrive(&a, at)
		a.Sandbox, a.Namespace = b.Path, b.Namespace
		if err := ap.Settle(ap.State.Desired().WithAttachment(a)); sockets.AreUnopened(err) {
			waits = err
			continue
		} else if err != nil {
			ap.State.Fail(a.Name, err)
			continue
		}
		ap.State.Log.Info("sandbox is back", "sandbox", at.Ref, "attachment", a.Name)
	}
	ap.Sandboxes.ForgetUnused()
	ap.Steps.StartLeasing()
	return waits
}
