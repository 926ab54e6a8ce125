package vm

import (
	"flag"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// running limits the machines that run at the same time: each uses one CPU.
var running = make(chan struct{}, runtime.GOMAXPROCS(0))

// TestMain lets tests that wait for a shared machine not count as running ones.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(1<<10)); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// run runs tasks in a machine of its own.
func run(t *testing.T, m Machine, tasks ...Task) []Outcome {
	t.Helper()
	defer begin(nil)()
	return m.Run(t.Context(), tasks...)
}

// begin waits until a machine may run, and returns a function to call at its end. The machines that take longer begin
// before it, so that none runs alone at the end. A machine that is not shared is nil, and a short one.
func begin(s *shared) (end func()) {
	for _, longer := range longestFirst {
		if longer == s {
			defer s.waiting.Done()
			break
		}
		longer.waiting.Wait()
	}
	running <- struct{}{}
	return func() { <-running }
}

// shared is a machine that runs tasks of several tests, with the modules and tools of all.
type shared struct {
	open func(*testing.T) Kernel
	mu   sync.Mutex
	next *batch
	// waiting counts the boots that will be, but have not begun.
	waiting sync.WaitGroup
}

// batch is one boot of a shared machine.
type batch struct {
	machine  Machine
	tasks    []Task
	boot     sync.Once
	outcomes []Outcome
}

// The shared machines.
var (
	forPrograms = &shared{open: debian}
	forBalancer = &shared{open: debian}
	forNetworks = &shared{open: debian}
	forLinks    = &shared{open: debian}
	forNewer    = &shared{open: backported}
	onARM       = &shared{open: debianARM}

	longestFirst = []*shared{forPrograms, forBalancer, forLinks, forNewer, forNetworks, onARM}
)

// run calls t.Parallel and returns the outcome of a task. The machine boots when all tests that share it have called
// run, and runs the tasks in the order of these calls. Do not call it from a subtest of a parallel test, which begins too
// late.
func (s *shared) run(t *testing.T, modules, tools []string, task Task) Outcome {
	t.Helper()
	kernel := s.open(t) // without the mutex: it ends the test if there is none
	s.mu.Lock()
	if s.next == nil {
		s.next = &batch{machine: Machine{Kernel: kernel}}
		s.waiting.Add(1)
	}
	b := s.next
	b.machine.Modules = union(b.machine.Modules, modules)
	b.machine.Tools = union(b.machine.Tools, tools)
	i := len(b.tasks)
	b.tasks = append(b.tasks, task)
	s.mu.Unlock()
	t.Parallel() // returns after the tests that are not parallel and the first parts of the others
	b.boot.Do(func() {
		s.mu.Lock()
		s.next = nil
		s.mu.Unlock()
		defer begin(s)()
		b.outcomes = b.machine.Run(t.Context(), b.tasks...)
	})
	return b.outcomes[i]
}

// union returns some names and those others that are not among them.
func union(names, others []string) []string {
	for _, other := range others {
		if !slices.Contains(names, other) {
			names = append(names[:len(names):len(names)], other)
		}
	}
	return names
}
