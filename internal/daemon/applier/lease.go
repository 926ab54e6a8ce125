package applier

import "fairlead/internal/model"

// ApplyLease implements leases.Config.Apply. It locks the mutex of the state.
func (ap *Applier) ApplyLease(name string, l model.Lease, current func() bool) error {
	err := ap.Steps.Do(ap.State.Life, func() error {
		a, ok := ap.State.Desired().Attachment(name)
		if !ok || !current() || a.Lease.Equal(l) {
			return nil
		}
		before := a.Lease
		a.Lease = l
		if before.Ends = l.Ends; before.Equal(l) { // it is renewed, and the host has it
			return ap.State.Save(ap.State.Desired().WithAttachment(a))
		}
		err := ap.Settle(ap.State.Desired().WithAttachment(a))
		if err == nil {
			ap.State.Log.Info("lease", "attachment", name, "addresses", l.Prefixes)
		}
		return err
	})
	if err != nil {
		ap.State.Log.Error("apply lease", "attachment", name, "error", err)
	}
	return err
}
