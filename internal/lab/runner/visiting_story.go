package runner

import (
	"context"
	"math"
	"time"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/site"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/visitor"
)

// longest is the time for which a story's schedule has visits; it ends earlier.
const longest = 10 * time.Minute

// story makes visits while something happens to nodes.
func (t *trip) story(ctx context.Context) error {
	p := t.plan(t.Visits.Plan.Rate)
	p.Count = int(p.Rate * longest.Seconds())
	crowd, err := visitor.Begin(ctx, t.order(p, true), t.site.Visitors())
	if err != nil {
		return err
	}
	defer crowd.Kill()
	if err := t.rest(ctx); err != nil {
		return err
	}
	if t.Event == suite.Replaced {
		err = t.replaceAll(ctx)
	} else {
		err = t.kill(ctx)
	}
	if err == nil {
		err = t.rest(ctx)
	}
	if err != nil {
		return err
	}
	t.visits, err = crowd.End()
	t.add()
	return err
}

// rest waits for a quarter of the duration while visits continue.
func (t *trip) rest(ctx context.Context) error { return pause(ctx, t.duration/4) }

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (t *trip) note(what string) time.Time {
	now := time.Now()
	t.events = append(t.events, happened{now, what})
	return now
}

// kill kills a node, waits until the director has noticed, and starts the node again.
// Without health checks it waits for as long as these may need.
func (t *trip) kill(ctx context.Context) error {
	victim := t.site.Nodes[0]
	at := t.note(victim.Name + " is killed")
	if err := victim.Kill(); err != nil {
		return err
	}
	if t.Visits.Unchecked {
		if err := pause(ctx, (site.Fall+1)*t.interval()); err != nil {
			return err
		}
	} else {
		down, err := t.site.Await(ctx, victim, false, at)
		if err != nil {
			return err
		}
		t.noticed = down.Sub(at)
		t.events = append(t.events, happened{down, victim.Name + " is removed"})
	}
	if err := t.rest(ctx); err != nil {
		return err
	}
	at = t.note(victim.Name + " starts")
	if err := victim.Start(ctx); err != nil || t.Visits.Unchecked {
		return err
	}
	up, err := t.site.Await(ctx, victim, true, at)
	t.events = append(t.events, happened{up, victim.Name + " is added"})
	return err
}

// replaceAll replaces the gateways, one after the other.
func (t *trip) replaceAll(ctx context.Context) error {
	for _, n := range t.site.Gateways() {
		t.note(n.Name + " is drained")
		if err := n.Drain(ctx); err != nil {
			return err
		}
		t.note("the gateway of " + n.Name + " is replaced")
		if err := n.Replace(ctx); err != nil {
			return err
		}
		if err := n.Enable(ctx); err != nil {
			return err
		}
		t.note(n.Name + " is enabled")
	}
	return nil
}

// The search of the knee. A rate is too great if the number of visits in progress
// grows by more than this share of the rate. The search doubles the rate until it is
// too great, and then halves the distance on a logarithmic scale this often.
const (
	tooSteep     = 0.05
	halvings     = 5
	maxVisitRate = 5000
)

// search finds the greatest rate that the site carries.
func (t *trip) search(ctx context.Context) error {
	low, high := 0.0, t.Visits.Plan.Rate
	for ; ; high *= 2 {
		over, err := t.try(ctx, high)
		if err != nil {
			return err
		}
		if over || high > maxVisitRate {
			break
		}
		low = high
	}
	if low == 0 {
		low = high / 16
	}
	for range halvings {
		middle := math.Sqrt(low * high)
		over, err := t.try(ctx, middle)
		if err != nil {
			return err
		}
		if over {
			high = middle
		} else {
			low = middle
		}
	}
	t.knee = low
	return nil
}

// try makes visits at a rate and reports whether it is too great.
func (t *trip) try(ctx context.Context, rate float64) (over bool, err error) {
	if err := t.visit(ctx, t.plan(rate), false); err != nil {
		return false, err
	}
	step := result.SiteStep{Rate: rate, Slope: t.visits.Slope()}
	step.Over = step.Slope > tooSteep*rate
	for _, v := range t.visits.Visits {
		step.Over = step.Over || v.Err != ""
	}
	t.steps = append(t.steps, step)
	return step.Over, nil
}
