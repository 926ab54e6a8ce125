package health

import (
	"container/heap"
	"time"
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

// queue holds the servers whose check is due until it may be made. A server is
// in it once: who is late is not checked twice for that.
type queue struct {
	limit int
	// up and down wait; down ones may hold half of the limit.
	up, down fifo
	// all and downs are the checks under way.
	all, downs int
}

type fifo struct {
	servers []*server
	head    int
}

func (f *fifo) add(s *server) { f.servers = append(f.servers, s) }

func (f *fifo) len() int { return len(f.servers) - f.head }

func (f *fifo) take() *server {
	s := f.servers[f.head]
	f.servers[f.head] = nil
	if f.head++; f.head == len(f.servers) {
		f.servers, f.head = f.servers[:0], 0
	}
	return s
}

func (q *queue) add(s *server) {
	s.busy = true
	if s.slow = s.rec.Known && !s.rec.Up; s.slow {
		q.down.add(s)
		return
	}
	q.up.add(s)
}

// take returns the next server that may be checked now, nil if there is none.
// done is to be called for it.
func (q *queue) take() *server {
	for q.all < q.limit {
		var s *server
		switch {
		case q.up.len() > 0:
			s = q.up.take()
		case q.down.len() > 0 && q.downs < max(1, q.limit/2):
			s = q.down.take()
		default:
			return nil
		}
		if s.gone {
			s.busy = false
			continue
		}
		q.all++
		if s.slow {
			q.downs++
		}
		return s
	}
	return nil
}

func (q *queue) done(s *server) {
	s.busy = false
	q.all--
	if s.slow {
		q.downs--
	}
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
