package daemon

import (
	"fmt"
	"slices"

	"fairlead/internal/daemon/external"
	"fairlead/internal/kernel/sockdiag"
)

// NeedsRestart reports whether a workload had bound sockets before its ports were
// published, and saves that. Such a socket has another address or port than its
// publishes and its policy for other ports allow. Sockets that the workload binds
// later are mapped. If the kernel cannot list the sockets (before Linux 5.9), needs is
// true and certain is false.
func (d *Daemon) NeedsRestart(name string) (needs, certain bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, known := d.desired.Attachment(name)
	if !known || a.Cgroup == "" {
		return false, true, nil
	}
	sockets, err := d.cfg.Kernel.Sockets().BoundBy(a.Cgroup)
	if err != nil {
		d.cfg.Log.Debug("read the sockets of a workload", "attachment", name, "error", err)
	}
	certain = err == nil
	publishes := d.desired.PublishesOf(name)
	if a.NeedsRestart = err != nil || slices.ContainsFunc(sockets,
		func(s sockdiag.Bound) bool { return !external.Translated(s, a.Unpublished, publishes) }); !a.NeedsRestart {
		return false, certain, nil
	}
	if err := d.save(d.desired.WithAttachment(a)); err != nil {
		return true, certain, fmt.Errorf("save that %s needs a restart: %w", name, err)
	}
	return true, certain, nil
}
