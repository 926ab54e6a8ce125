package docker

import (
	"time"

	"fairlead/internal/cgroup"

	"golang.org/x/sys/unix"
)

// freezeLimit is how long a container's start can wait for its ports.
const freezeLimit = 10 * time.Second

// frozen is a frozen cgroup in which no process has run yet. nil is a cgroup that
// is not frozen.
type frozen struct {
	path  string
	limit *time.Timer
}

// freeze freezes a cgroup that is empty. It does not freeze a cgroup that has
// processes: a runtime would take that for a paused container.
func freeze(path string) *frozen {
	if populated(path) || cgroup.Freeze(path) != nil {
		return nil
	}
	return thawLater(path)
}

// thawLater returns a frozen cgroup that is thawed after freezeLimit at the latest.
func thawLater(path string) *frozen {
	return &frozen{path, time.AfterFunc(freezeLimit, func() { thaw(path) })}
}

// end thaws the cgroup, and reports whether it was frozen until now.
func (f *frozen) end() bool {
	if f == nil || !f.limit.Stop() {
		return false
	}
	thaw(f.path)
	return true
}

// thaw thaws a cgroup. The cgroup may have been removed.
func thaw(path string) {
	_ = cgroup.Thaw(path)
}

// populated reports whether a cgroup has processes. It returns true if that is
// unknown.
func populated(path string) bool {
	is, err := cgroup.Populated(path)
	return err != nil || is
}

// raisePriority gives the calling thread the lowest real-time priority. If that is
// refused, e.g. in a cgroup v1 without real-time budget, it sets the highest nice
// level. Children do not inherit the real-time priority.
func raisePriority() {
	realtime := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1,
		Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	if unix.SchedSetAttr(0, &realtime, 0) != nil {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20) // optional: needed on a busy host only
	}
}
