package load

import (
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// The phases of a run at the sender.
const (
	phaseWarm uint32 = iota
	phaseWindow
	phaseAfter
)

// job is one run in a child: its threads, and the switches that they watch.
type job struct {
	spec  Spec
	token uint64
	side  Side
	clock clock

	// phase changes at the window's edges. quiet stops the senders; done means
	// that receivers need not wait for more data. Each is read per message and
	// rarely written, so they share no cache line with counters.
	phase atomic.Uint32
	quiet atomic.Bool
	done  atomic.Bool

	senders   sync.WaitGroup
	receivers sync.WaitGroup

	// downs counts the admitted downward streams; only the admitting thread
	// uses it.
	downs int

	mu      sync.Mutex
	threads []*thread
	fault   error
	// sources are the addresses of the clients of an HTTP server.
	sources map[netip.Addr]bool
}

// spareProcessors are for control, admission and the Go runtime: a stream keeps its
// processor while it is blocked.
const spareProcessors = 4

// newJob prepares the process for a run: one processor per stream, so that no
// stream waits for another's system call, and no garbage collection until finish.
func newJob(side Side, q request) *job {
	runtime.GOMAXPROCS(q.Spec.threads() + spareProcessors)
	runtime.GC()
	percent := -1
	if q.Spec.TLS {
		// Every handshake allocates, and its goroutines can wait for a collection.
		percent = 800
	}
	debug.SetGCPercent(percent)
	return &job{spec: q.Spec, token: q.Token, side: side, clock: newClock()}
}

// send runs f as a sender on a new thread, receive as a receiver.
func (j *job) send(f func(*thread) error)    { j.spawn(&j.senders, f) }
func (j *job) receive(f func(*thread) error) { j.spawn(&j.receivers, f) }

func (j *job) spawn(group *sync.WaitGroup, f func(*thread) error) {
	t := j.newThread()
	j.lock(group, func() error { return f(t) })
}

// lock runs f on a new thread of a group.
func (j *job) lock(group *sync.WaitGroup, f func() error) {
	j.share(group, func() error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		return f()
	})
}

// share runs f in a goroutine of a group, which may share its thread with others.
func (j *job) share(group *sync.WaitGroup, f func() error) {
	group.Go(func() {
		if err := f(); err != nil {
			j.fail(err)
		}
	})
}

func (j *job) newThread() *thread {
	t := &thread{}
	if j.side == ClientSide && j.spec.Workload.transactional() {
		t.latency = newHistogram()
	}
	if j.spec.Rate > 0 {
		t.service, t.lateness = newHistogram(), newHistogram()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.threads = append(j.threads, t)
	return t
}

// fail keeps the first failure, which the reply to the parent's next request
// contains.
func (j *job) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fault == nil {
		j.fault = err
	}
}

func (j *job) failure() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.fault
}

// enter moves the run to a phase and returns the counters at that moment.
func (j *job) enter(phase uint32) edge {
	j.phase.Store(phase)
	return edge{Mono: j.clock.now(), CPU: cpuTime(), User: userTime(), Totals: j.totals()}
}

func (j *job) totals() Totals {
	j.mu.Lock()
	defer j.mu.Unlock()
	var sum Totals
	for _, t := range j.threads {
		sum.add(t)
	}
	return sum
}

// hush stops the senders and waits for them.
func (j *job) hush() {
	j.quiet.Store(true)
	j.senders.Wait()
}

// finish waits for every thread and returns the figures of the whole run.
func (j *job) finish() (outcome, error) {
	j.hush()
	j.done.Store(true)
	j.receivers.Wait()
	debug.SetGCPercent(100)
	out := outcome{Totals: j.totals(), Sources: slices.Collect(maps.Keys(j.sources))}
	latency, service, lateness := newHistogram(), newHistogram(), newHistogram()
	for _, t := range j.threads {
		for why, n := range t.reasons {
			if out.Reasons == nil {
				out.Reasons = map[string]int{}
			}
			out.Reasons[why] += n
		}
		out.MarkedSent += t.markedSent
		out.MarkedReceived += t.markedReceived
		out.Failed += t.failed
		merge(latency, t.latency)
		merge(service, t.service)
		merge(lateness, t.lateness)
	}
	err := j.failure()
	for _, h := range []struct {
		from *hdrhistogram.Histogram
		to   *[]byte
	}{{latency, &out.Latency}, {service, &out.Service}, {lateness, &out.Lateness}} {
		if e := encode(h.from, h.to); e != nil && err == nil {
			err = e
		}
	}
	return out, err
}

func merge(into, from *hdrhistogram.Histogram) {
	if from != nil {
		into.Merge(from)
	}
}

func encode(h *hdrhistogram.Histogram, to *[]byte) error {
	if h.TotalCount() == 0 {
		return nil
	}
	b, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return fmt.Errorf("encode histogram: %w", err)
	}
	*to = b
	return nil
}

// stream is an open descriptor of this job.
func (j *job) stream(fd int, peer netip.AddrPort) *stream {
	s := &stream{fd: fd, peer: peer, spin: j.spec.Mode == Spin, patience: patience}
	if j.side == ServerSide {
		s.over = &j.done
	}
	return s
}

// clock reads CLOCK_MONOTONIC through the vDSO: unix.ClockGettime would be a
// system call for every message, so it is called once, to find the offset of
// Go's own monotonic reading.
type clock struct {
	base time.Time
	mono int64
}

func newClock() clock {
	var ts unix.Timespec
	base := time.Now()
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail: the clock always exists
	return clock{base: base, mono: ts.Nano()}
}

func (c clock) now() int64 { return c.mono + int64(time.Since(c.base)) }

// cpuTime is the CPU time of this process, in ns.
func cpuTime() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts)
	return ts.Nano()
}

// userTime is the CPU time that this process spent in its own code, in ns.
func userTime() int64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return u.Utime.Nano()
}
