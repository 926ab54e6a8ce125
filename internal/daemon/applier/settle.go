package applier

import (
	"errors"

	"fairlead/internal/api"
	"fairlead/internal/daemon/sockets"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Settle saves and applies a desired state. It omits sandboxes that ended meanwhile.
// On any other failure it restores the previous desired state, also on the host.
func (ap *Applier) Settle(next model.Desired) error {
	before := ap.State.Desired()
	err := ap.attemptWithoutDead(&before, &next)
	switch {
	case err == nil:
		ap.Services.ForgetHealth(before, next)
		return nil
	case sockets.AreUnopened(err): // the engine has changed nothing, and the step is repeated
		ap.State.KeepProblems()
		return errors.Join(err, ap.State.Save(before))
	}
	return ap.rollBack(before, next, err)
}

// attemptWithoutDead saves and applies a desired state. It removes sandboxes that ended meanwhile from it and from the
// state before, and leaves out networks that cannot exist on this host now.
func (ap *Applier) attemptWithoutDead(before, next *model.Desired) error {
	for {
		err := ap.attempt(*next)
		if err == nil || sockets.AreUnopened(err) {
			return err
		}
		dead := ap.Sandboxes.Dead(*next)
		if len(dead) == 0 && !ap.Networks.MarkUnavailable(*before, *next, err) {
			return err
		}
		ap.stopDead(dead)
		*next, *before = next.WithoutSandboxes(dead), before.WithoutSandboxes(dead)
	}
}

// CleanUp removes what belonged to sandboxes that have ended. Even if applying fails,
// they stay removed from the desired state, so a repeated step must settle it again.
func (ap *Applier) CleanUp(dead map[string]bool) error {
	ap.forgetDead(dead)
	return ap.Settle(ap.State.Desired())
}

// forgetDead removes what belonged to sandboxes that have ended from the desired state.
func (ap *Applier) forgetDead(dead map[string]bool) {
	for ref := range dead {
		ap.State.Log.Info("sandbox is gone", "sandbox", ref)
	}
	ap.stopDead(dead)
	ap.State.Assume(ap.State.Desired().WithoutSandboxes(dead))
}

// attempt saves and applies a desired state.
func (ap *Applier) attempt(next model.Desired) error {
	if err := ap.State.Save(next); err != nil {
		return err
	}
	return ap.applySaved()
}

// applySaved applies the desired state.
func (ap *Applier) applySaved() error {
	if err := ap.Services.Apply(ap.State.Desired()); err != nil {
		return err
	}
	ap.State.MarkProblems()
	ap.Sandboxes.ForgetUnused()
	ap.Applied()
	ap.Services.NeedContainers(ap.State.Desired())
	ap.State.Changed()
	return nil
}

// rollBack restores the previous desired state and returns the error of the failed
// one. The code is Conflict if next is invalid.
func (ap *Applier) rollBack(before, next model.Desired, err error) error {
	if invalid := ap.Services.StateOf(next).Validate(); invalid != nil {
		err = &api.Fault{Code: api.Conflict, Err: invalid}
	}
	ap.State.KeepProblems()
	if back := ap.attempt(before); back != nil {
		ap.Steps.Later("restore the previous state", back, ap.applySaved)
		return errors.Join(err, ap.State.Save(before))
	}
	return err
}

// Plan returns the result of a dry run: the plan for a desired state, and whether it changes anything.
func (ap *Applier) Plan(next model.Desired) (api.Result, error) {
	s := ap.Services.StateOf(next)
	ops, err := ap.Engine.Plan(s)
	if err != nil {
		if invalid := s.Validate(); invalid != nil {
			err = &api.Fault{Code: api.Conflict, Err: invalid}
		}
		return api.Result{}, err
	}
	return api.Result{Plan: plan.Text(ops), Changed: len(ops) > 0}, nil
}

// stopDead ends the DHCP clients of sandboxes that have ended.
func (ap *Applier) stopDead(dead map[string]bool) {
	for _, a := range ap.State.Desired().Attachments {
		if dead[a.Ref] {
			ap.Leases.Drop(a.Name)
		}
	}
}
