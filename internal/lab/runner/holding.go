package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fairlead/internal/lab/failover"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/virtual"
	"fairlead/internal/plan"
)

// holding makes the host that has a virtual address fail, or give it away, under load.
type holding struct {
	own
	// interval is for how long clients connect before the event, and twice as long after
	// the address has moved.
	interval time.Duration
	facts    plan.Facts
}

// run builds the hosts in a separate world and removes it afterwards.
func (h holding) run(ctx context.Context, b *built, c result.Client) result.Run {
	r := b.Rig
	run := result.Run{Case: result.Case{Path: r.Path.Name, Client: c, Workload: h.Name, Tool: result.OwnTool}}
	keeper, ok := r.Maker.(virtual.Keeper)
	if !ok {
		return invalid(run, errors.New("the path has no virtual address"))
	}
	w, err := virtual.New(ctx, virtual.Options{Facts: h.facts, Keeper: keeper, Groups: r.Groups})
	if err != nil {
		return invalid(run, err)
	}
	if err = errors.Join(h.measure(ctx, w, &run), w.Close()); err != nil {
		return invalid(run, err)
	}
	return run
}

// measure triggers the event while a client connects, and sets the run's metrics.
func (h holding) measure(ctx context.Context, w *virtual.World, run *result.Run) error {
	var o virtual.Outcome
	err := accounted(w.Groups, run, func() (err error) {
		o, err = h.story(ctx, w)
		return err
	})
	if err != nil {
		return err
	}
	run.Failed = o.Errors
	run.Proof = &result.Proof{Counter: "hosts that answered after the event", Want: 1, OK: o.Ended}
	if o.Ended {
		run.Proof.Got = 1
	}
	run.Metrics = map[result.Metric]float64{
		result.FailoverTime: o.Moved.Seconds(), result.Overlap: o.Overlap.Seconds(),
		result.FailedConnects: float64(o.Failed), result.SlowestRequest: o.Slowest.Seconds(),
	}
	if o.Early > 0 {
		run.Invalid = append(run.Invalid, fmt.Sprintf("%d connection attempts failed before the event", o.Early))
	}
	if !run.Proof.OK {
		run.Invalid = append(run.Invalid, "the address did not move")
	}
	return nil
}

// story performs one event.
func (h holding) story(ctx context.Context, w *virtual.World) (o virtual.Outcome, err error) {
	holder, err := w.Holder(ctx)
	if err != nil {
		return o, err
	}
	client, err := w.Ask(ctx)
	if err != nil {
		return o, err
	}
	defer client.Kill()
	if err := pause(ctx, h.interval); err != nil {
		return o, err
	}
	event := time.Now()
	if err := h.trigger(ctx, holder); err != nil {
		return o, err
	}
	if err := w.Moved(ctx, holder, event); err != nil {
		return o, err
	}
	if err := pause(ctx, 2*h.interval); err != nil {
		return o, err
	}
	var all []failover.Request
	if all, err = client.End(); err != nil {
		return o, err
	}
	return virtual.Judge(all, w.Log(), holder.Name, event), nil
}

// trigger makes the event happen.
func (h holding) trigger(ctx context.Context, holder *virtual.Host) error {
	switch h.Event {
	case suite.HolderKilled:
		holder.Kill()
		return nil
	case suite.HolderCut:
		return holder.Cut()
	}
	return holder.Give(ctx)
}
