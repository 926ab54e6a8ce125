package applier

import "fairlead/internal/model"

// ApplyLease implements leases.Config.Apply. It locks the mutex of the state.
func (ap *Applier) ApplyLease(name string, l model.Lease, current func() bool) error {
	err := ap.steps.Do(ap.state.Life, func() error {
		a, ok := ap.state.Desired().Attachment(name)
		if !ok || !current() || a.Lease.Equal(l) {
			return nil
		}
		before := a.Lease
		a.Lease = l
		if before.Ends = l.Ends; before.Equal(l) { // it is renewed, and the host has it
			return ap.state.Save(ap.state.Desired().WithAttachment(a))
		}
		err := ap.Settle(ap.state.Desired().WithAttachment(a))
		if err == nil {
			ap.state.Log.Info("lease", "attachment", name, "addresses", l.Prefixes)
		}
		return err
	})
	if err != nil {
		ap.state.Log.Error("apply lease", "attachment", name, "error", err)
	}
	return err
}
