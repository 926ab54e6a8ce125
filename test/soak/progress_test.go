package soak_test

import (
	"fmt"
	"time"

	"fairlead/internal/kernel/bpf"

	"golang.org/x/sys/unix"
)

// progress returns one line about everything so far.
func progress(r *room, talks []*talk, n *newcomers, counts map[string]int) string {
	var answers, slowest int64
	for _, t := range talks {
		answers += t.answers.Load()
		slowest = max(slowest, t.slowest.Load())
	}
	return fmt.Sprintf("%d conversations: %d answers, slowest %s; short connections: %d answered, %d not; engine: %d changes, killed %d times; "+
		"entries: %d ports, %d TCP and %d UDP flows, %d aliases; CPU time of the test %s",
		len(talks), answers, time.Duration(slowest).Round(time.Millisecond), n.answered.Load(), n.unanswered.Load(),
		r.changes.Load(), r.kills.Load(), counts[bpf.FairleadMapFlPorts], counts[bpf.FairleadMapFlFlowsTcp],
		counts[bpf.FairleadMapFlFlowsUdp], counts[bpf.FairleadMapFlAliases], spent())
}

// spent returns the CPU time of this process and of the engines that have ended.
func spent() time.Duration {
	var sum int64
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if unix.Getrusage(who, &u) == nil {
			sum += u.Utime.Nano() + u.Stime.Nano()
		}
	}
	return time.Duration(sum).Round(10 * time.Millisecond)
}
