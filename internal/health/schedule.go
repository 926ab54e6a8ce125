package health

import (
	"container/heap"
	"time"
)

// schedule is a heap of servers, ordered by the time at which they are due.
type schedule struct{ heap byTime }

// first returns the server that is due first, nil if there is none.
func (s *schedule) first() *server {
	if len(s.heap) == 0 {
		return nil
	}
	return s.heap[0]
}

// set updates the server's place from its times. A server without a time is
// removed.
func (s *schedule) set(of *server) {
	of.when = of.next
	if of.when.IsZero() || (!of.turns.IsZero() && of.turns.Before(of.when)) {
		of.when = of.turns
	}
	switch in := of.place >= 0; {
	case of.when.IsZero() || of.gone:
		if in {
			heap.Remove(&s.heap, of.place)
		}
	case in:
		heap.Fix(&s.heap, of.place)
	default:
		heap.Push(&s.heap, of)
	}
}

// byTime is the heap. A server stores its index in it, -1 for none.
type byTime []*server

func (h byTime) Len() int           { return len(h) }
func (h byTime) Less(i, j int) bool { return h[i].when.Before(h[j].when) }
func (h byTime) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *byTime) Push(x any) {
	s := x.(*server)
	s.place = len(*h)
	*h = append(*h, s)
}

// Pop implements heap.Interface.
func (h *byTime) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	s.place = -1
	return s
}

// class is the class of a check, by which checks in progress are limited.
type class int

// The classes. The limits of commands (each is a process), of servers that are
// down (which may not answer) and of parallel checks of a server leave room for
// ordinary checks.
const (
	ordinary class = iota
	command
	downed
	beside
	classes
)

// attempt is a check that waits or is in progress.
type attempt struct {
	of    *server
	class class
	// began is when the check began; zero while it waits.
	began time.Time
	// moot is true if the result is no longer needed.
	moot bool
	// cancel ends the check, after it has begun.
	cancel func()
	// delayed is the Monitor's total delay when the check began.
	delayed time.Duration
}

// queue contains the checks that are due until they may begin.
type queue struct {
	waiting [classes]fifo
	// running counts the checks in progress, and limit is the most there may be, for
	// each class; allRunning and allLimit are for all classes together.
	running, limit       [classes]int
	allRunning, allLimit int
}

// mostCommands limits the commands that run at the same time.
const mostCommands = 64

func newQueue(limit int) queue {
	return queue{allLimit: limit, limit: [classes]int{ordinary: limit, command: min(limit, mostCommands),
		downed: max(1, limit/2), beside: max(1, limit/8)}}
}

type fifo struct {
	checks []*attempt
	head   int
}

func (f *fifo) add(c *attempt) { f.checks = append(f.checks, c) }

func (f *fifo) len() int { return len(f.checks) - f.head }

func (f *fifo) take() *attempt {
	c := f.checks[f.head]
	f.checks[f.head] = nil
	if f.head++; f.head == len(f.checks) {
		f.checks, f.head = f.checks[:0], 0
	}
	return c
}

func (q *queue) add(c *attempt) {
	c.class = ordinary
	t, _ := typeOf(c.of.of.v.Check.Type)
	switch rec := c.of.rec; {
	case t.starts:
		c.class = command
	case rec.Known && !rec.Up:
		c.class = downed
	case len(c.of.checks) > 1:
		c.class = beside
	}
	q.waiting[c.class].add(c)
}

// take returns the next check that may begin now, nil if there is none. The caller
// must call done when the check has ended.
func (q *queue) take() *attempt {
	for n := range q.waiting {
		for q.waiting[n].len() > 0 && q.running[n] < q.limit[n] && q.allRunning < q.allLimit {
			c := q.waiting[n].take()
			if c.moot {
				continue
			}
			q.allRunning++
			q.running[n]++
			return c
		}
	}
	return nil
}

func (q *queue) done(c *attempt) {
	q.allRunning--
	q.running[c.class]--
}

// len returns the number of waiting checks.
func (q *queue) len() int {
	n := 0
	for c := range q.waiting {
		n += q.waiting[c].len()
	}
	return n
}

// Counters count the checks of a Monitor.
type Counters struct {
	// Checks is the number of all checks. Failed of them failed, and Void of them
	// could not be made by this host.
	Checks, Failed, Void uint64
	// InFlight is the number of checks in progress, Waiting that of checks that are
	// due but wait.
	InFlight, Waiting int
	// Busy is how long all checks together took.
	Busy time.Duration
}

func (c *Counters) count(res Result) {
	c.Checks++
	c.Busy += res.Latency
	switch {
	case res.Void:
		c.Void++
	case !res.OK:
		c.Failed++
	}
}
