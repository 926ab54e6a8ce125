package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fairlead/internal/lab/failover"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
	"fairlead/internal/plan"
)

// failing makes one of several real servers fail, or drains it, under load.
type failing struct {
	own
	// interval is the time between two checks of a real server.
	interval time.Duration
	facts    plan.Facts
}

// run builds the path in a separate world and removes it afterwards, because
// daemons and checks would not be idle while other paths are measured.
func (f failing) run(ctx context.Context, b *built, c result.Client) result.Run {
	r := b.Rig
	run := result.Run{Case: result.Case{Path: r.Path.Name, Client: c, Workload: f.Name, Tool: result.OwnTool}}
	w, err := buildFailing(ctx, r, f)
	if err != nil {
		return invalid(run, err)
	}
	o, err := w.measure(ctx, &run)
	if err = errors.Join(err, w.close()); err != nil {
		return invalid(run, err)
	}
	run.Failed = o.Errors
	run.Proof = &result.Proof{Counter: "real servers that answered", Want: uint64(len(w.servers)),
		Got: uint64(len(o.By))}
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
	var all []failover.Request
	var e outcome
	err = accounted(w.rig.Groups, run, func() (err error) {
		all, e, err = w.story(ctx)
		return err
	})
	if err != nil {
		return o, err
	}
	o = failover.Judge(all, e.Event)
	if !o.Returned {
		return o, fmt.Errorf("real server %s got no request after its return", e.Server)
	}
	run.Metrics = map[result.Metric]float64{
		result.Requests: float64(o.Asked), result.FailedRequests: float64(o.Failed),
		result.RecoveryTime: o.Recovery.Seconds(), result.ReturnTime: o.Return.Seconds(),
		result.SlowestRequest: o.Slowest.Seconds(),
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

// story performs one event: it starts the client, waits, triggers the event, waits,
// lets the server return, and waits again.
func (w *failingWorld) story(ctx context.Context) ([]failover.Request, outcome, error) {
	e := outcome{Event: failover.Event{Server: rig.Victim}}
	client, err := failover.StartClient(ctx, w.balancer.Target(), w.rig.Place(w.Client(), rig.ClientGroup))
	if err != nil {
		return nil, e, err
	}
	defer client.Kill()
	if err := pause(ctx, w.interval/2); err != nil {
		return nil, e, err
	}
	e.At = time.Now()
	switch w.Event {
	case suite.Killed:
		w.servers[rig.Victim].Kill()
		e.noticed, err = w.outage(ctx, e.At)
	case suite.Silenced:
		if err = w.servers[rig.Victim].Silence(); err == nil {
			e.noticed, err = w.outage(ctx, e.At)
		}
	case suite.Drained:
		if err = w.balancer.Drain(ctx, rig.Victim); err == nil {
			w.servers[rig.Victim].Kill()
			err = pause(ctx, w.interval)
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
	if w.balancer.Reports() == nil {
		return noticed, pause(ctx, (rig.Fall+1)*w.interval)
	}
	if noticed, err = w.down(ctx, rig.Victim, event); err != nil {
		return noticed, err
	}
	return noticed, pause(ctx, w.interval)
}

// revive restarts the server and waits until clients are sent to it, and half an
// interval more.
func (w *failingWorld) revive(ctx context.Context) (back time.Time, err error) {
	back = time.Now()
	if w.Event == suite.Silenced {
		err = w.servers[rig.Victim].Resume()
	} else {
		err = w.startServer(ctx, rig.Victim)
	}
	if err == nil && w.Event == suite.Drained {
		err = w.balancer.Enable(ctx, rig.Victim)
	}
	if err == nil {
		err = w.answers(ctx, rig.Victim)
	}
	return back, errors.Join(err, pause(ctx, w.interval/2))
}

// down waits until the balancer reports a server as down after an event, and
// returns that time.
func (w *failingWorld) down(ctx context.Context, server string, event time.Time) (time.Time, error) {
	expired := time.After(rig.Patience)
	for {
		select {
		case said, ok := <-w.balancer.Reports():
			if !ok {
				return time.Time{}, fmt.Errorf("the balancer has ended: %s", w.balancer.Log())
			}
			if said.Server == server && !said.Up && said.At.After(event) {
				return said.At, nil
			}
		case <-expired:
			return time.Time{}, fmt.Errorf("the balancer has not reported within %s that %s is down: %s",
				rig.Patience, server, w.balancer.Log())
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

// answers sends requests until a given server answers.
func (w *failingWorld) answers(ctx context.Context, server string) error {
	by := ""
	var failed error
	for deadline := time.Now().Add(rig.Patience); by != server; {
		if time.Now().After(deadline) {
			return fmt.Errorf("want an answer of %s through the balancer, got %q: %w: %s", server, by, failed,
				w.balancer.Log())
		}
		if err := w.DoClient(func() error { by, failed = failover.Ask(w.balancer.Target()); return nil }); err != nil {
			return err
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
