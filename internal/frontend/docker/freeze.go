package docker

import (
	"time"

	"fairlead/internal/cgroup"

	"golang.org/x/sys/unix"
)

// freezeLimit is how long a container's start may wait for its ports.
const freezeLimit = 10 * time.Second

// frozen is a cgroup where nothing runs yet; nil is one where something may.
type frozen struct {
	path  string
	limit *time.Timer
}

// freeze holds whatever comes into a cgroup, if nothing is in it yet. One that
// is frozen later, with its process already there, a runtime takes for a
// container that somebody has paused.
func freeze(path string) *frozen {
	if populated(path) || cgroup.Freeze(path) != nil {
		return nil
	}
	return limited(path)
}

// limited is a cgroup that is frozen, but not for long.
func limited(path string) *frozen {
	return &frozen{path, time.AfterFunc(freezeLimit, func() { thaw(path) })}
}

// end lets the cgroup go, and reports whether it was held until now.
func (f *frozen) end() bool {
	if f == nil || !f.limit.Stop() {
		return false
	}
	thaw(f.path)
	return true
}

// thaw lets what is in a cgroup go on. The cgroup may have gone.
func thaw(path string) {
	_ = cgroup.Thaw(path)
}

// populated reports whether there are processes in a cgroup, or it cannot be
// known.
func populated(path string) bool {
	is, err := cgroup.Populated(path)
	return err != nil || is
}

// urgent has the calling thread run before all that are not urgent: at the
// lowest real-time priority, or else, as in a cgroup v1 without a share of that
// time, at the highest of the others. Its children do not inherit it.
func urgent() {
	realtime := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	if unix.SchedSetAttr(0, &realtime, 0) != nil {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20) // without it, it works as well while the host is not busy
	}
}
