package endpoints

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/daemon/external"
	"fairlead/internal/daemon/sockets"
	"fairlead/internal/daemon/step"
	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Admit publishes the ports of a workload. A repeated call changes nothing. If the ports
// cannot be published, the attachment is kept with that problem, and Admit returns the
// cause; changed is then true. Returns a Fault with code Conflict, and keeps nothing,
// if another attachment has the name.
func (x *Endpoints) Admit(w api.Workload) (changed bool, err error) {
	return step.For(x.state.Life, x.steps, func() (bool, error) { return x.admit(w) })
}

// admit is one attempt of Admit.
func (x *Endpoints) admit(w api.Workload) (changed bool, err error) {
	a, publishes, err := external.Workload(w)
	have, known := x.state.Desired().Attachment(w.Name)
	if known && have.Network != api.HostNetwork {
		return false, api.Faultf(api.Conflict, "publish ports of %s: another attachment has the name %s", w.Ref, w.Name)
	}
	a.NeedsRestart = have.NeedsRestart
	if err == nil && known && have.Equal(a) &&
		slices.EqualFunc(x.state.Desired().PublishesOf(w.Name), publishes, model.Publish.Equal) {
		return false, nil
	}
	a.NeedsRestart = false
	next := x.state.Desired().WithoutAttachments(map[string]bool{w.Name: true})
	if known { // a new cgroup at the same path must not be mistaken for the earlier one
		err = errors.Join(err, x.cfg.Applier.Settle(next))
	}
	if err == nil {
		err = x.checkPorts(publishes)
	}
	if err == nil {
		delete(x.state.Problems, w.Name)
		err = x.cfg.Applier.Settle(external.WithWorkload(next, a, publishes))
	}
	if err == nil {
		x.state.Log.Info("published", "attachment", w.Name, "sandbox", w.Ref, "publishes", len(publishes))
		return true, nil
	}
	if err = fmt.Errorf("publish ports of %s: %w", w.Ref, err); sockets.AreUnopened(err) {
		return false, err
	}
	a.Cgroup, a.Namespace, a.Unpublished = "", "", ""
	x.state.Problems[w.Name] = err.Error()
	return true, errors.Join(err, x.cfg.Applier.Settle(external.WithWorkload(next, a, nil)))
}

// Dismiss removes the attachment and the publishes of a workload that has ended. It is
// not an error if there is none.
func (x *Endpoints) Dismiss(name string) error {
	return x.steps.Do(x.state.Life, func() error { return x.dismiss(name) })
}

// dismiss is one attempt of Dismiss.
func (x *Endpoints) dismiss(name string) error {
	if a, known := x.state.Desired().Attachment(name); !known || a.Network != api.HostNetwork {
		return nil
	}
	delete(x.state.Problems, name)
	if err := x.cfg.Applier.Settle(x.state.Desired().WithoutAttachments(map[string]bool{name: true})); err != nil {
		return fmt.Errorf("unpublish the ports of %s: %w", name, err)
	}
	x.state.Log.Info("dismissed", "attachment", name)
	return nil
}

// checkPorts returns a *model.PortTakenError if another process uses one of the host
// ports. A workload that does not run yet uses none.
func (x *Endpoints) checkPorts(publishes []model.Publish) error {
	for _, p := range publishes {
		hosts := []netip.Addr{p.HostAddr}
		if !p.HostAddr.IsValid() {
			hosts = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
		}
		for _, host := range hosts {
			err := x.cfg.Kernel.Sockets().CheckPorts([]plan.EBPFMapping{{Proto: p.Proto, Host: host,
				Ports: p.HostPorts}})
			if inUse, ok := errors.AsType[*sockdiag.PortInUseError](err); ok {
				return &model.PortTakenError{Publish: p, Owner: inUse.Owner.String()}
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// NeedsRestart reports whether a workload had bound sockets before its ports were
// published, and saves that. Such a socket has another address or port than its
// publishes and its policy for other ports allow. Sockets that the workload binds
// later are mapped. If the kernel cannot list the sockets (before Linux 5.9), needs is
// true and certain is false.
func (x *Endpoints) NeedsRestart(name string) (needs, certain bool, err error) {
	x.state.Lock()
	defer x.state.Unlock()
	a, known := x.state.Desired().Attachment(name)
	if !known || a.Cgroup == "" {
		return false, true, nil
	}
	sockets, err := x.cfg.Kernel.Sockets().BoundBy(a.Cgroup)
	if err != nil {
		x.state.Log.Debug("read the sockets of a workload", "attachment", name, "error", err)
	}
	certain = err == nil
	publishes := x.state.Desired().PublishesOf(name)
	if a.NeedsRestart = err != nil || slices.ContainsFunc(sockets,
		func(s sockdiag.Bound) bool { return !external.Translated(s, a.Unpublished, publishes) }); !a.NeedsRestart {
		return false, certain, nil
	}
	if err := x.state.Save(x.state.Desired().WithAttachment(a)); err != nil {
		return true, certain, fmt.Errorf("save that %s needs a restart: %w", name, err)
	}
	return true, certain, nil
}
