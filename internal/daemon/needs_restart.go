package daemon

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/kernel"
	"fairlead/internal/model"
)

// NeedsRestart looks whether a workload, in whose cgroup something may have run
// before its ports were published, had bound sockets by then, and notes it.
// What it binds after that is led, whenever it has started. Where the kernel
// cannot tell, it came late.
func (d *Daemon) NeedsRestart(name string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, known := d.attachment(name)
	if !known || a.Cgroup == "" {
		return false, nil
	}
	sockets, err := d.cfg.Host.BoundBy(a.Cgroup)
	if err != nil {
		d.cfg.Log.Debug("look whether a workload has bound", "attachment", name, "error", err)
	}
	publishes := d.publishesOf(name)
	if a.NeedsRestart = err != nil || slices.ContainsFunc(sockets, func(s kernel.Bound) bool { return !translated(s, a.Unpublished, publishes) }); !a.NeedsRestart {
		return false, nil
	}
	if err := d.save(with(d.desired, a)); err != nil {
		return true, fmt.Errorf("note that %s came late: %w", name, err)
	}
	return true, nil
}

// translated reports whether a workload's socket is where its publishes and its policy
// for other ports would have put it.
func translated(s kernel.Bound, unpublished model.Unpublished, publishes []model.Publish) bool {
	at, port := s.At.Addr(), model.Port(s.At.Port())
	listed := false
	for _, p := range publishes {
		if p.Proto != s.Proto {
			continue
		}
		if p.HostPorts.Overlaps(port) && grants(p, at) {
			return true
		}
		listed = listed || p.Ports.Overlaps(port) && p.Accepts(at)
	}
	switch unpublished {
	case model.UnpublishedDeny:
		return false
	case model.UnpublishedAllow:
		return !listed
	}
	return !listed && at.IsLoopback()
}

// grants reports whether a bind to one of the ports of the publish may end at
// the address.
func grants(p model.Publish, at netip.Addr) bool {
	return p.AcceptsFamily(at.Is4()) && (p.AnyAddr() || p.HostAddr == at)
}

// lateness is what is wrong with an attachment whose workload ran before.
func lateness(a model.Attachment) string {
	if !a.NeedsRestart {
		return ""
	}
	return "it ran before its ports were led: what it has bound until then is where it asked for: restart it"
}
