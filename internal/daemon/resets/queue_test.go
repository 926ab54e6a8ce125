package resets_test

import (
	"slices"
	"sync"
	"testing"

	"fairlead/internal/daemon/resets"
)

// log records what happens, in order.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

// TestOrder: no function waits for another one. Reports follow their functions, in the order of these, although later
// requests report meanwhile.
func TestOrder(t *testing.T) {
	var state sync.Mutex
	var l log
	q := resets.New(&state)
	report := func(line string) {
		state.Lock()
		defer state.Unlock()
		q.Report(func() { l.add(line) })
	}
	report("nothing was added")
	begin, second := make(chan struct{}), make(chan struct{})
	q.Add(func() { <-begin; l.add("first") })
	report("report of the first")
	report("report of a step that has added none")
	q.Add(func() { l.add("second"); close(second) })
	report("report of the second")
	<-second
	close(begin)
	q.WaitAll()
	report("all is done")
	want := []string{"nothing was added", "second", "first", "report of the first", "report of the second",
		"all is done"}
	if !slices.Equal(l.lines, want) {
		t.Errorf("%q, want %q", l.lines, want)
	}
}

// TestOwn: a request waits for what it has added, and not for what others have added.
func TestOwn(t *testing.T) {
	q := resets.New(&sync.Mutex{})
	begin := make(chan struct{})
	var removal, attach <-chan struct{}
	request := func(own *<-chan struct{}, f func()) {
		if err := q.Own(own, func() error { f(); return nil })(); err != nil {
			t.Fatal(err)
		}
	}
	request(&removal, func() { q.Add(func() { <-begin }) })
	request(&attach, func() {})
	resets.Wait(t.Context(), attach)
	select {
	case <-removal:
		t.Error("the request that has added a function does not wait for it")
	default:
	}
	close(begin)
	resets.Wait(t.Context(), removal)
	q.WaitAll()
}
