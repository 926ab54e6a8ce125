package health

import (
	"container/heap"
	"time"

	"fairlead/internal/model"
)

// schedule holds the servers by when there is something to do for them, in a
// heap.
type schedule struct{ heap byTime }

// first returns the server whose time comes first, nil if there is none.
func (s *schedule) first() *server {
	if len(s.heap) == 0 {
		return nil
	}
	return s.heap[0]
}

// set puts the server where its times say; without any it is taken out.
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

// byTime is the heap; a server knows its place in it, -1 for none.
type byTime []*server

func (h byTime) Len() int           { return len(h) }
func (h byTime) Less(i, j int) bool { return h[i].when.Before(h[j].when) }
func (h byTime) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push is heap.Interface's.
func (h *byTime) Push(x any) {
	s := x.(*server)
	s.place = len(*h)
	*h = append(*h, s)
}

// Pop is heap.Interface's.
func (h *byTime) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	s.place = -1
	return s
}

// class is what a check is counted as.
type class int

// The classes: servers that are down, which may not answer, commands, each of
// which is a process, and checks beside others of the same server leave room
// for the others.
const (
	ordinary class = iota
	command
	downed
	beside
	classes
)

// attempt is a check that waits to be made, or is under way.
type attempt struct {
	of    *server
	class class
	// began is when it has begun; it waits before.
	began time.Time
	// moot says that nobody asks any more what it finds.
	moot bool
	// cancel ends it, once it has begun.
	cancel func()
	// delayed is by how much the Monitor had been late in all when it began.
	delayed time.Duration
}

// queue holds the checks that are due until they may be made.
type queue struct {
	waiting [classes]fifo
	// under are the checks under way, and most how many there may be: of a class,
	// and all.
	under, most         [classes]int
	allUnder, mostUnder int
}

// mostCommands bounds the commands that run at once.
const mostCommands = 64

func newQueue(most int) queue {
	return queue{mostUnder: most, most: [classes]int{ordinary: most, command: min(most, mostCommands), downed: max(1, most/2), beside: max(1, most/8)}}
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
	switch rec := c.of.rec; {
	case c.of.of.v.Check.Type == model.CheckExec:
		c.class = command
	case rec.Known && !rec.Up:
		c.class = downed
	case len(c.of.checks) > 1:
		c.class = beside
	}
	q.waiting[c.class].add(c)
}

// take returns the next check that may be made now, nil if there is none. done
// is to be called for it.
func (q *queue) take() *attempt {
	for n := range q.waiting {
		for q.waiting[n].len() > 0 && q.under[n] < q.most[n] && q.allUnder < q.mostUnder {
			c := q.waiting[n].take()
			if c.moot {
				continue
			}
			q.allUnder++
			q.under[n]++
			return c
		}
	}
	return nil
}

func (q *queue) done(c *attempt) {
	q.allUnder--
	q.under[c.class]--
}

// len returns how many wait.
func (q *queue) len() int {
	n := 0
	for c := range q.waiting {
		n += q.waiting[c].len()
	}
	return n
}

// Counters count what a Monitor has done.
type Counters struct {
	// Checks were made, of which some Failed, and some were Void: this host
	// could not make them.
	Checks, Failed, Void uint64
	// InFlight are under way, and Waiting are due.
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
