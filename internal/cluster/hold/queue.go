package hold

import (
	"container/heap"
	"time"
)

// queue has addresses in the order in which something is due for them. Its zero value is empty.
type queue []*address

// Len implements heap.Interface.
func (q queue) Len() int { return len(q) }

// Less implements heap.Interface.
func (q queue) Less(i, j int) bool { return q[i].due < q[j].due }

// Swap implements heap.Interface.
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].slot, q[j].slot = i+1, j+1
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	a := x.(*address)
	a.slot = len(*q) + 1
	*q = append(*q, a)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	a := (*q)[last]
	(*q)[last] = nil
	*q, a.slot = (*q)[:last], 0
	return a
}

// set puts an address where its time belongs.
func (q *queue) set(a *address, due time.Duration) {
	switch {
	case a.slot == 0:
		a.due = due
		heap.Push(q, a)
	case a.due != due:
		a.due = due
		heap.Fix(q, a.slot-1)
	}
}

// remove removes an address, if it is there.
func (q *queue) remove(a *address) {
	if a.slot > 0 {
		heap.Remove(q, a.slot-1)
	}
}

// first returns when something is due first; 0 if nothing ever is.
func (q queue) first() time.Duration {
	if len(q) == 0 {
		return 0
	}
	return q[0].due
}

// take removes and returns the addresses for which something is due.
func (q *queue) take(now time.Duration) (all []*address) {
	for len(*q) > 0 && (*q)[0].due <= now {
		all = append(all, heap.Pop(q).(*address))
	}
	return all
}
