package load

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// exhaust makes the spec's number of connections, each attempted once, until the
// window's time is over. It counts the failures by reason. It gives each connection a
// port of its own, the highest ones: if most ports are in use, the kernel takes longer to
// find a free one than to connect, and the client would be slower than the path.
func (j *job) exhaust(t *thread, target netip.AddrPort) error {
	v, err := j.newVisitor(t, target)
	if err != nil {
		return err
	}
	t.reasons = map[string]int{}
	for j.phase.Load() == phaseWarm && !j.quiet.Load() {
		rawSleep(j.clock.now() + int64(time.Millisecond))
	}
	ends := j.clock.now() + int64(j.spec.Duration)
	made := 0
	for ; made < j.spec.Attempts && j.clock.now() < ends && !j.quiet.Load(); made++ {
		v.source = j.spec.firstSource() + uint16(made)
		began := j.clock.now()
		done, err := v.visit()
		if err == nil {
			j.record(t, began, began, done)
			continue
		}
		t.errors.Add(1)
		t.failed++
		t.reasons[reason(err)]++
	}
	if left := j.spec.Attempts - made; left > 0 {
		t.failed += uint64(left)
		t.reasons[fmt.Sprintf("not attempted within %s", j.spec.Duration)] = left
	}
	return nil
}

// firstSource returns the source port of the first attempt.
func (s Spec) firstSource() uint16 { return uint16(1<<16 - s.Attempts) }

// reason returns why a connection failed, without addresses and ports.
func reason(err error) string {
	kind := kindOf(err)
	var errno unix.Errno
	switch {
	case kind != "":
		return kind
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return "no source port left"
	case errors.As(err, &errno):
		return errno.Error()
	}
	return err.Error()
}
