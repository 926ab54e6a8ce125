package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"fairlead/internal/dockerapi"
	"fairlead/internal/frontend/traefik"
)

const (
	// mostQuestions is how many containers the engine is asked for at a time.
	mostQuestions = 32
	// patience is by default how long events wait for the answer about another container.
	patience = time.Second
	// mostLater is how many events of one container wait for the answer about it.
	mostLater = 64
	// soonestQuestion and latestQuestion bound the time until a container is asked for again that the
	// engine could not report. It doubles with each failure.
	soonestQuestion, latestQuestion = time.Second, time.Minute
)

// question is a container that the engine is asked for.
type question struct {
	name string
	// events are those of the container that wait for the answer.
	events []*dockerapi.Event
}

// answer is the answer to a question.
type answer = dockerapi.Answer[*question]

// failure is why the engine could not report a container.
type failure struct {
	name  string
	err   error
	since time.Time
	// wait is the time from the last failure to the next question, at next.
	wait time.Duration
	next time.Time
}

// String returns the failure with its time.
func (f *failure) String() string {
	return fmt.Sprintf("inspect the container: %v (since %s)", f.err, traefik.Moment(f.since))
}

// ask asks the engine for a container. The answer comes later.
func (d *Docker) ask(ctx context.Context, id, name string) {
	q := &question{name: name}
	d.asking[id] = q
	d.inspections.Ask(ctx, id, q)
}

// await handles answers until it is done, or its patience ends. It reports whether they change the
// containers.
func (d *Docker) await(ctx context.Context, done func() bool) (differs bool) {
	limit := time.NewTimer(d.patience)
	defer limit.Stop()
	for !done() {
		select {
		case a := <-d.inspections.Answers:
			differs = d.answered(a) || differs
		case <-limit.C:
			return differs
		case <-ctx.Done():
			return differs
		}
	}
	return differs
}

// reread asks for a container again. It waits for the answer, unless the last one was a failure or many
// events wait. Name is that of the event, "" if it has none. It reports whether the containers differ.
func (d *Docker) reread(ctx context.Context, id, name string) bool {
	if c, ok := d.known[id]; ok && name == "" {
		name = c.PlainName()
	}
	d.ask(ctx, id, cmp.Or(name, dockerapi.Short(id)))
	if d.failures[id] != nil || len(d.events) >= flood {
		return false
	}
	return d.await(ctx, func() bool { return d.asking[id] == nil })
}

// later keeps an event until the answer, which replaces what the oldest of many events say.
func (q *question) later(e *dockerapi.Event) {
	if q.events = append(q.events, e); len(q.events) > mostLater {
		q.events = q.events[1:]
	}
}

// handleLater is handle for an event of a container that the engine is asked for. That the container
// ends is certain without the answer, which may even be older.
func (d *Docker) handleLater(ctx context.Context, q *question, e *dockerapi.Event) bool {
	if action := e.Verb(); action == "die" || action == "destroy" {
		differs := d.end(e.Actor.ID, action)
		d.ask(ctx, e.Actor.ID, q.name)
		return differs
	}
	q.later(e)
	return false
}

// answered takes an answer, and reports whether the containers differ.
func (d *Docker) answered(a answer) bool {
	if d.asking[a.ID] != a.To {
		return false // there is a newer question
	}
	delete(d.asking, a.ID)
	d.backlog = append(d.backlog, a.To.events...)
	switch {
	case errors.Is(a.Err, os.ErrNotExist):
		delete(d.known, a.ID)
	case a.Err != nil:
		return d.failed(a)
	case a.Container.State.Running || traefik.AllowsNonRunning(a.Container.Config.Labels):
		d.known[a.ID] = a.Container
	default:
		delete(d.known, a.ID)
	}
	delete(d.containers, a.ID)
	delete(d.failures, a.ID)
	if s, ok := d.stopping[a.ID]; ok && !s.started.Equal(a.Container.Started()) {
		delete(d.stopping, a.ID)
	}
	return true
}

// failed notes that the engine could not report a container, which stays as it was. It reports whether
// the reason is new.
func (d *Docker) failed(a answer) bool {
	now, f := time.Now(), d.failures[a.ID]
	if f == nil {
		f = &failure{since: now, wait: soonestQuestion / 2}
		d.failures[a.ID] = f
	}
	differs := f.err == nil || f.err.Error() != a.Err.Error()
	f.name, f.err, f.wait = a.To.name, a.Err, min(2*f.wait, latestQuestion)
	f.next = now.Add(f.wait)
	return differs
}

// retryTime is when the next container is to be asked for again; nil if there is none.
func (d *Docker) retryTime() <-chan time.Time {
	var next time.Time
	for id, f := range d.failures {
		if d.asking[id] == nil && (next.IsZero() || f.next.Before(next)) {
			next = f.next
		}
	}
	if next.IsZero() {
		return nil
	}
	return time.After(time.Until(next))
}

// retry asks again for the containers whose time has come.
func (d *Docker) retry(ctx context.Context, now time.Time) {
	for id, f := range d.failures {
		if d.asking[id] == nil && !f.next.After(now) {
			d.ask(ctx, id, f.name)
		}
	}
}

// staleness returns why a container that is known may differ; "" if the engine has reported it.
func (d *Docker) staleness(id string) string {
	if f := d.failures[id]; f != nil {
		return f.String() + "; its last known state stays in use"
	}
	return ""
}

// unknown returns the problems of the containers that the engine has never reported.
func (d *Docker) unknown() (problems []traefik.Problem) {
	for _, id := range slices.Sorted(maps.Keys(d.failures)) {
		if _, ok := d.known[id]; !ok {
			f := d.failures[id]
			problems = append(problems, traefik.Problem{Source: "container " + f.name, Text: f.String() +
				": it has no routers until the engine answers"})
		}
	}
	return problems
}
