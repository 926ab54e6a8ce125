package docker

import (
	"sync"

	"fairlead/internal/alarm"
)

// job is work for a container.
type job struct {
	do func()
	// frozen is thawed after the job, or if the job is dropped.
	frozen *frozen
}

// jobs are the jobs of the worker, in order. They have no limit, and add does not wait: it is called with locks that
// the worker needs.
type jobs struct {
	mu  sync.Mutex
	all []job
	// added receives a value when there may be a job.
	added alarm.Signal
}

func newJobs() *jobs { return &jobs{added: alarm.NewSignal()} }

func (q *jobs) add(j job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all = append(q.all, j)
	q.added.Send()
}

// take returns all jobs that wait, and removes them.
func (q *jobs) take() []job {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.all
	q.all = nil
	return all
}
