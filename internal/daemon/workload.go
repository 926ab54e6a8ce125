package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/daemon/external"
	"fairlead/internal/daemon/sockets"
	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Admit publishes the ports of a workload. A repeated call changes nothing. If the ports
// cannot be published, the attachment is kept with that problem, and Admit returns the
// cause; changed is then true. Returns a Fault with code Conflict, and keeps nothing,
// if another attachment has the name.
func (d *Daemon) Admit(w api.Workload) (changed bool, err error) {
	return stepFor(d.life, d.state, func() (bool, error) { return admit(d, w) })
}

// admit is one attempt of Admit.
func admit(d *Daemon, w api.Workload) (changed bool, err error) {
	a, publishes, err := external.Workload(w)
	have, known := d.desired.Attachment(w.Name)
	if known && have.Network != api.HostNetwork {
		return false, api.Faultf(api.Conflict, "publish ports of %s: another attachment has the name %s", w.Ref, w.Name)
	}
	a.NeedsRestart = have.NeedsRestart
	if err == nil && known && have.Equal(a) &&
		slices.EqualFunc(d.desired.PublishesOf(w.Name), publishes, model.Publish.Equal) {
		return false, nil
	}
	a.NeedsRestart = false
	next := d.desired.WithoutAttachments(map[string]bool{w.Name: true})
	if known { // a new cgroup at the same path must not be mistaken for the earlier one
		err = errors.Join(err, d.applier.settle(next))
	}
	if err == nil {
		err = d.checkPorts(publishes)
	}
	if err == nil {
		delete(d.problems, w.Name)
		err = d.applier.settle(external.WithWorkload(next, a, publishes))
	}
	if err == nil {
		d.cfg.Log.Info("published", "attachment", w.Name, "sandbox", w.Ref, "publishes", len(publishes))
		return true, nil
	}
	if err = fmt.Errorf("publish ports of %s: %w", w.Ref, err); sockets.AreUnopened(err) {
		return false, err
	}
	a.Cgroup, a.Namespace, a.Unpublished = "", "", ""
	d.problems[w.Name] = err.Error()
	return true, errors.Join(err, d.applier.settle(external.WithWorkload(next, a, nil)))
}

// Dismiss removes the attachment and the publishes of a workload that has ended. It is
// not an error if there is none.
func (d *Daemon) Dismiss(name string) error {
	return d.step(d.life, func() error { return dismiss(d, name) })
}

// dismiss is one attempt of Dismiss.
func dismiss(d *Daemon, name string) error {
	if a, known := d.desired.Attachment(name); !known || a.Network != api.HostNetwork {
		return nil
	}
	delete(d.problems, name)
	if err := d.applier.settle(d.desired.WithoutAttachments(map[string]bool{name: true})); err != nil {
		return fmt.Errorf("unpublish the ports of %s: %w", name, err)
	}
	d.cfg.Log.Info("dismissed", "attachment", name)
	return nil
}

// checkPorts returns a *model.PortTakenError if another process uses one of the host
// ports. A workload that does not run yet uses none.
func (d *Daemon) checkPorts(publishes []model.Publish) error {
	for _, p := range publishes {
		hosts := []netip.Addr{p.HostAddr}
		if !p.HostAddr.IsValid() {
			hosts = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
		}
		for _, host := range hosts {
			err := d.cfg.Kernel.Sockets().CheckPorts([]plan.EBPFMapping{{Proto: p.Proto, Host: host,
				Ports: p.HostPorts}})
			var inUse *sockdiag.PortInUseError
			if errors.As(err, &inUse) {
				return &model.PortTakenError{Publish: p, Owner: inUse.Owner.String()}
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
