package runner

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"fairlead/internal/lab/failover"
	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
	"fairlead/internal/plan"
)

// A real server is reported as down after this many consecutive failed checks, and
// as up after as many successful ones.
const (
	fall = 2
	rise = 2
)

// failing makes one of several real servers fail, or drains it, under load.
type failing struct {
	suite.Workload
	// interval is the time between two checks of a real server.
	interval time.Duration
	facts    plan.Facts
}

func (f failing) name() (workload, tool string) { return f.Name, result.OwnTool }

func (f failing) what() suite.Workload { return f.Workload }

// run builds the path in a separate world and removes it afterwards, because
// daemons and checks would not be idle while other paths are measured.
func (f failing) run(ctx context.Context, r *rig, c result.Client) result.Run {
	run := result.Run{Case: result.Case{Path: r.path.Name, Client: c, Workload: f.Name, Tool: result.OwnTool}}
	w, err := buildFailing(ctx, r, f)
	if err != nil {
		return invalid(run, err)
	}
	o, err := w.measure(ctx, &run)
	if err = errors.Join(err, w.close()); err != nil {
		return invalid(run, err)
	}
	run.Failed = o.Errors
	run.Proof = &result.Proof{Counter: "real servers that answered", Want: uint64(len(w.servers)), Got: uint64(len(o.By))}
	run.Proof.OK = run.Proof.Got == run.Proof.Want
	if o.Early > 0 {
		run.Invalid = append(run.Invalid, fmt.Sprintf("%d requests failed before the event", o.Early))
	}
	if !run.Proof.OK {
		run.Invalid = append(run.Invalid, "the traffic did not take the path: "+run.Proof.Counter)
	}
	return run
}

// measure triggers the event while a client sends requests, and sets the run's
// metrics.
func (w *failingWorld) measure(ctx context.Context, run *result.Run) (o failover.Outcome, err error) {
	var window *ledger.Window
	if w.rig.groups != nil {
		if window, err = ledger.Begin(w.rig.groups.Parties()); err != nil {
			return o, err
		}
	}
	began := time.Now()
	all, e, err := w.story(ctx)
	if err != nil {
		return o, err
	}
	run.Seconds = time.Since(began).Seconds()
	if window != nil {
		l, gates, err := window.End()
		if err != nil {
			return o, err
		}
		run.Ledger = &l
		disturbed(run, gates)
	}
	o = failover.Judge(all, e.Event)
	if !o.Returned {
		return o, fmt.Errorf("real server %s got no request after its return", e.Server)
	}
	run.Metrics = map[result.Metric]float64{
		result.Requests: float64(o.Asked), result.FailedRequests: float64(o.Failed),
		result.RecoveryTime: o.Recovery.Seconds(), result.ReturnTime: o.Return.Seconds(), result.SlowestRequest: o.Slowest.Seconds(),
	}
	if !e.noticed.IsZero() {
		run.Metrics[result.NoticeTime] = e.noticed.Sub(e.At).Seconds()
	}
	return o, nil
}

// outcome is an event, and when the balancer reported it.
type outcome struct {
	failover.Event
	noticed time.Time
}

// victim is the real server that fails.
const victim = "a"

// story performs one event: it starts the client, waits, triggers the event, waits,
// lets the server return, and waits again.
func (w *failingWorld) story(ctx context.Context) ([]failover.Request, outcome, error) {
	e := outcome{Event: failover.Event{Server: victim}}
	client, err := failover.StartClient(ctx, w.balancer.target(), w.rig.place(w.Client(), clientGroup))
	if err != nil {
		return nil, e, err
	}
	defer client.Kill()
	if err := w.rest(ctx, w.interval/2); err != nil {
		return nil, e, err
	}
	e.At = time.Now()
	switch w.Event {
	case suite.Killed:
		w.servers[victim].Kill()
		e.noticed, err = w.outage(ctx, e.At)
	case suite.Silenced:
		if err = w.servers[victim].Silence(); err == nil {
			e.noticed, err = w.outage(ctx, e.At)
		}
	case suite.Drained:
		if err = w.balancer.drain(ctx, victim); err == nil {
			w.servers[victim].Kill()
			err = w.rest(ctx, w.interval)
		}
	}
	if err == nil {
		e.Back, err = w.revive(ctx)
	}
	if err != nil {
		return nil, e, err
	}
	all, err := client.End()
	return all, e, err
}

// outage waits until the balancer reports the server as down, and one interval
// more. If the balancer makes no checks, it waits for the longest time that the
// others may need.
func (w *failingWorld) outage(ctx context.Context, event time.Time) (noticed time.Time, err error) {
	if w.balancer.words() == nil {
		return noticed, w.rest(ctx, (fall+1)*w.interval)
	}
	if noticed, err = w.down(ctx, victim, event); err != nil {
		return noticed, err
	}
	return noticed, w.rest(ctx, w.interval)
}

// revive restarts the server and waits until clients are sent to it, and half an
// interval more.
func (w *failingWorld) revive(ctx context.Context) (back time.Time, err error) {
	back = time.Now()
	if w.Event == suite.Silenced {
		err = w.servers[victim].Resume()
	} else {
		err = w.startServer(ctx, victim)
	}
	if err == nil && w.Event == suite.Drained {
		err = w.balancer.enable(ctx, victim)
	}
	if err == nil {
		err = w.answers(ctx, victim)
	}
	return back, errors.Join(err, w.rest(ctx, w.interval/2))
}

// rest waits while requests continue.
func (w *failingWorld) rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// patience is the maximum time for each wait.
const patience = 30 * time.Second

// down waits until the balancer reports a server as down after an event, and
// returns that time.
func (w *failingWorld) down(ctx context.Context, server string, event time.Time) (time.Time, error) {
	expired := time.After(patience)
	for {
		select {
		case said, ok := <-w.balancer.words():
			if !ok {
				return time.Time{}, fmt.Errorf("the balancer has ended: %s", w.balancer.log())
			}
			if said.server == server && !said.up && said.at.After(event) {
				return said.at, nil
			}
		case <-expired:
			return time.Time{}, fmt.Errorf("the balancer has not reported within %s that %s is down: %s", patience, server, w.balancer.log())
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

// answers sends requests until a given server answers.
func (w *failingWorld) answers(ctx context.Context, server string) error {
	by := ""
	var failed error
	for deadline := time.Now().Add(patience); by != server; {
		if time.Now().After(deadline) {
			return fmt.Errorf("want an answer of %s through the balancer, got %q: %w: %s", server, by, failed, w.balancer.log())
		}
		if err := w.DoClient(func() error { by, failed = failover.Ask(w.balancer.target()); return nil }); err != nil {
			return err
		}
		if err := w.rest(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// balancer distributes a path's clients over its real servers.
type balancer interface {
	// target returns the address that clients dial.
	target() netip.AddrPort
	// words returns the channel of its reports about real servers, nil if it makes
	// no checks. The channel is closed when the balancer ends; log then has the
	// reason.
	words() <-chan word
	log() string
	// drain stops new connections to a server and waits until it has none;
	// enable allows them again.
	drain(ctx context.Context, server string) error
	enable(ctx context.Context, server string) error
	close() error
}

// word is a balancer's report that a real server is up or down.
type word struct {
	at     time.Time
	server string
	up     bool
}

// manyWords is how many unread reports are kept; later ones are lost.
const manyWords = 1000

// say sends a word without blocking; it drops the word if the channel is full.
func say(to chan<- word, w word) {
	select {
	case to <- w:
	default:
	}
}
