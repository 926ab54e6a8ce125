package daemon

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/model"
)

// NeedsRestart reports whether a workload had bound sockets before its ports were
// published, and saves that. Such a socket has another address or port than its
// publishes and its policy for other ports allow. Sockets that the workload binds
// later are mapped. If the kernel cannot list the sockets (before Linux 5.9), the
// result is true.
func (d *Daemon) NeedsRestart(name string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, known := d.desired.Attachment(name)
	if !known || a.Cgroup == "" {
		return false, nil
	}
	sockets, err := d.cfg.Kernel.Sockets().BoundBy(a.Cgroup)
	if err != nil {
		d.cfg.Log.Debug("read the sockets of a workload", "attachment", name, "error", err)
	}
	publishes := d.desired.PublishesOf(name)
	if a.NeedsRestart = err != nil || slices.ContainsFunc(sockets, func(s sockdiag.Bound) bool { return !translated(s, a.Unpublished, publishes) }); !a.NeedsRestart {
		return false, nil
	}
	if err := d.save(d.desired.WithAttachment(a)); err != nil {
		return true, fmt.Errorf("save that %s needs a restart: %w", name, err)
	}
	return true, nil
}

// translated reports whether a workload's socket is where its publishes and its policy
// for other ports would have put it.
func translated(s sockdiag.Bound, unpublished model.Unpublished, publishes []model.Publish) bool {
	at, port := s.At.Addr(), model.Port(s.At.Port())
	listed := false
	for _, p := range publishes {
		if p.Proto != s.Proto {
			continue
		}
		if p.HostPorts.Overlaps(port) && mayBindAt(p, at) {
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

// mayBindAt reports whether a bind to a published port may get the address.
func mayBindAt(p model.Publish, at netip.Addr) bool {
	return p.AcceptsFamily(at.Is4()) && (p.AnyAddr() || p.HostAddr == at)
}

// restartProblem is the problem of an attachment whose workload needs a restart, or
// empty.
func restartProblem(a model.Attachment) string {
	if !a.NeedsRestart {
		return ""
	}
	return "it bound ports before they were published, and these are not mapped: restart it"
}
