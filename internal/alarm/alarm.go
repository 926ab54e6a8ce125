// Package alarm waits for times that are far away, by a clock that may be set and on a host that may be suspended, and
// has the signals by which goroutines wake others. It starts nothing by itself.
//
// The timers of the runtime use CLOCK_MONOTONIC: they stop while the host is suspended, and do not notice that the time
// of day is set. So no sleep here is longer than Longest, and the caller's clock is read again after each.
package alarm

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// Longest is how long a sleep lasts at most, and so how late a wait can end after the clock was set or the host was
// suspended.
const Longest = time.Minute

// Until waits until left returns 0 or less, or until ctx ends, and then returns ctx's error. left returns how long
// there is to wait by the clock that counts.
func Until(ctx context.Context, left func() time.Duration) error {
	for ctx.Err() == nil {
		d := left()
		if d <= 0 {
			return nil
		}
		timer := time.NewTimer(min(d, Longest))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return ctx.Err()
}

// resolution is that of Suspended: two clocks cannot be read at the same moment.
const resolution = 100 * time.Millisecond

// Suspended returns for how long the host has been suspended since it booted.
func Suspended() time.Duration {
	boot, monotonic := read(unix.CLOCK_BOOTTIME), read(unix.CLOCK_MONOTONIC)
	return (boot - monotonic).Round(resolution)
}

// SinceBoot returns how long ago the host booted. The time of suspends counts, and changes of the time of day do not.
// Another process of the same boot may compare its results with these.
func SinceBoot() time.Duration { return read(unix.CLOCK_BOOTTIME) }

// Now returns the time by a clock that also runs while the host is suspended, and that ignores changes of the time of
// day. Its results may be compared only with each other.
func Now() time.Time { return time.Now().Add(Suspended()) }

func read(clock int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		panic("read a clock: " + err.Error()) // Linux has had both since 2.6.39
	}
	return time.Duration(t.Nano())
}
