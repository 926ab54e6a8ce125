package ledger

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"fairlead/internal/lab/result"
)

// Window is a window that has begun. The parties' processes must not end in it,
// because their time would be counted for their parents too.
type Window struct {
	parties Parties
	begin   snapshot
}

// Gates are the measurements that may make a window invalid.
type Gates struct {
	// Throttled is for how many seconds a CPU limit (cgroup v1 or v2) stopped
	// the laboratory or a party to it, summed over CPUs.
	Throttled float64
	// Thermal is how often a CPU was throttled because of heat.
	Thermal uint64
	// OtherShare is the share of all CPU time that processes outside the
	// laboratory used.
	OtherShare float64
	// Others are the processes that used most of it.
	Others []result.Consumer
	// Ended counts processes that ended in the window. Their time is in Other if
	// they were reaped, and in Unattributed if not.
	Ended int
	// Resolution is the part of Busy that may be rounding of /proc/stat: the
	// ledger's error cannot be expected to be smaller.
	Resolution float64
	// Sampled is the busy time according to the kernel's sampled columns, in
	// seconds; Ledger.Busy is measured.
	Sampled float64
}

// Begin reads the values at the first edge.
func Begin(parties Parties) (*Window, error) {
	s, err := take(parties)
	if err != nil {
		return nil, fmt.Errorf("begin CPU ledger: %w", err)
	}
	return &Window{parties: parties, begin: s}, nil
}

// End reads the values at the second edge and closes the ledger. It may be called
// once per window.
func (w *Window) End() (result.Ledger, Gates, error) {
	end, err := take(w.parties)
	if err != nil {
		return result.Ledger{}, Gates{}, fmt.Errorf("end CPU ledger: %w", err)
	}
	return closeLedger(w.begin, end)
}

// snapshot contains all values of one edge.
type snapshot struct {
	mono                  float64
	stat                  Stat
	client, server, proxy float64
	tasks                 tasks
	party                 map[int]bool
	byGroups              bool
	throttled             float64
	thermal               uint64
}

// take reads an edge on one thread, the whole machine and the parties first: the
// scan of all processes takes longest and needs least precision.
func take(p Parties) (s snapshot, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer hurry()()
	if s.mono, s.stat, err = readStat(); err != nil {
		return s, err
	}
	s.party, s.byGroups = map[int]bool{}, p.Client.Cgroup != nil
	for _, v := range []struct {
		party Party
		to    *float64
	}{{p.Client, &s.client}, {p.Server, &s.server}, {p.Proxy, &s.proxy}} {
		usage, err := v.party.usage()
		if err = errors.Join(err, v.party.members(s.party)); err != nil {
			return s, err
		}
		*v.to = usage
	}
	if s.tasks, err = readTasks(); err != nil {
		return s, err
	}
	s.throttled, s.thermal = readThrottled(p), readThermal()
	return s, nil
}

// hurry gives this thread precedence over the measured traffic, so that the traffic does not delay the
// edge: on a machine whose CPUs are all busy, an edge would take longer than a short window. It returns
// a function that restores the thread's priority. Without the right to do so, it changes nothing.
func hurry() (restore func()) {
	const highest = -20
	// The system call returns 20 minus the nice value, because negative values are errors.
	before, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err == nil {
		err = unix.Setpriority(unix.PRIO_PROCESS, 0, highest)
	}
	if err != nil {
		return func() {}
	}
	return func() { _ = unix.Setpriority(unix.PRIO_PROCESS, 0, 20-before) }
}

// readStat returns /proc/stat and the time at which it was read.
func readStat() (mono float64, s Stat, err error) {
	f, err := os.Open("/proc/stat")
	if err != nil {
		return 0, s, fmt.Errorf("read CPU time: %w", err)
	}
	defer f.Close()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, s, fmt.Errorf("read clock: %w", err)
	}
	s, err = ParseStat(f)
	return float64(ts.Nano()) / 1e9, s, err
}

func closeLedger(a, b snapshot) (result.Ledger, Gates, error) {
	wall := b.mono - a.mono
	all, err := between(a.stat, b.stat, wall)
	if err != nil {
		return result.Ledger{}, Gates{}, err
	}
	party := map[int]bool{}
	for _, set := range []map[int]bool{a.party, b.party} {
		for pid := range set {
			party[pid] = true
		}
	}
	s := rest(a.tasks, b.tasks, party, b.tasks.owner())
	l := result.Ledger{
		Wall: wall, CPUs: a.stat.CPUs,
		User: all.user, System: all.system, IRQ: all.irq, Soft: all.soft, Steal: all.steal,
		Idle: all.idle, Busy: all.busy,
		Client: rise(a.client, b.client), Server: rise(a.server, b.server), Proxy: rise(a.proxy, b.proxy),
		KernelThread: s.kernel, Laboratory: s.self, Other: s.other,
	}
	if b.byGroups {
		// A cgroup includes the time of ended processes.
		l.Laboratory += s.children
	} else {
		// In a window only the path starts processes, and a child that is neither
		// client nor server forwards packets.
		l.Proxy += s.children + s.reaped
	}
	l.Unattributed = l.Busy - l.Client - l.Server - l.Proxy - l.KernelThread - l.Laboratory - l.Other
	l.Error = share(math.Abs(l.Unattributed), l.Busy)
	// Idle and I/O wait are each rounded down at both edges.
	return l, Gates{
		Throttled:  rise(a.throttled, b.throttled),
		Thermal:    b.thermal - a.thermal,
		Others:     s.top,
		OtherShare: share(l.Other, wall*float64(l.CPUs)),
		Ended:      s.ended,
		Resolution: share(2*tick, l.Busy),
		Sampled:    all.sampled,
	}, nil
}

// share is part/whole; if whole is zero, 1 for any part.
func share(part, whole float64) float64 {
	if whole > 0 {
		return part / whole
	}
	if part > 0 {
		return 1
	}
	return 0
}
