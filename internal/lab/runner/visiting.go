package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/site"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/visitor"
	"fairlead/internal/plan"
)

// visiting makes visits of a web site.
type visiting struct {
	own
	// duration is for how long visits start.
	duration time.Duration
	seed     uint64
	facts    plan.Facts
}

// maxVisitLateness is the limit for the p99 of the visitors' own delay.
const maxVisitLateness = 5 * time.Millisecond

// interval is the time between two checks of a gateway. It is shorter in short runs in
// which a node fails.
func (v visiting) interval() time.Duration {
	if v.Event == "" {
		return time.Second
	}
	return min(max(v.duration/10, 250*time.Millisecond), time.Second)
}

// run builds the site in a separate world and removes it afterwards.
func (v visiting) run(ctx context.Context, b *built, c result.Client) result.Run {
	run := result.Run{Case: result.Case{Path: b.Path.Name, Client: c, Workload: v.Name, Tool: result.OwnTool}}
	r := b.Rig
	if r == nil {
		if err := v.between(ctx, b, &run); err != nil {
			return invalid(run, err)
		}
		return run
	}
	opt := site.Options{Path: r.Path, Facts: v.facts, Groups: r.Groups, Pages: v.Visits.Pages,
		Interval: v.interval()}
	if r.Groups == nil {
		return invalid(run, site.ErrNoGroups)
	}
	if v.Visits.Unchecked {
		opt.Interval = 0
	}
	s, err := site.New(ctx, opt)
	if err != nil {
		return invalid(run, err)
	}
	if err = errors.Join(v.measure(ctx, r, s, &run), s.Close()); err != nil {
		return invalid(run, err)
	}
	return run
}

// measure makes the visits and sets what the run has measured.
func (v visiting) measure(ctx context.Context, r *rig.Rig, s *site.Site, run *result.Run) error {
	before, err := s.Count()
	if err != nil {
		return err
	}
	window, err := ledger.Begin(r.Groups.Parties())
	if err != nil {
		return err
	}
	t := &trip{visiting: v, path: r.Path, site: s, entry: s.Entry()}
	t.send = func(ctx context.Context, o visitor.Order) (visitor.Visits, error) {
		return visitor.Run(ctx, o, s.Visitors())
	}
	err = t.run(ctx)
	l, gates, e := window.End()
	after, failed := s.Count()
	if err = errors.Join(err, e, failed); err != nil {
		return err
	}
	run.Ledger, run.Seconds = &l, l.Wall
	disturbed(run, gates)
	t.report(run, after.Since(before))
	return nil
}

// plan returns the schedule's description for a rate.
func (v visiting) plan(rate float64) visitor.Plan {
	p := v.Visits.Plan
	p.Rate, p.Seed = rate, v.seed
	if p.Count == 0 {
		p.Count = max(1, int(rate*v.duration.Seconds()))
	}
	return p
}

// trip is a run of visits.
type trip struct {
	visiting
	path suite.Path
	// site is nil between two machines.
	site  *site.Site
	entry site.Entry
	// send sends the visitors of an order and returns when all visits are over.
	send func(context.Context, visitor.Order) (visitor.Visits, error)
	// visits are those of the last schedule. received counts the verified bytes of all.
	visits   visitor.Visits
	total    int
	received uint64
	steps    []result.SiteStep
	events   []happened
	knee     float64
	noticed  time.Duration
}

// happened is an event of a node.
type happened struct {
	at   time.Time
	what string
}

func (t *trip) order(p visitor.Plan, probe bool) visitor.Order {
	return visitor.Order{Target: t.entry.Target, Host: site.Host, Chain: t.entry.Chain, Pages: t.Visits.Pages, Plan: p,
		Probe: probe}
}

// run makes all visits of the workload.
func (t *trip) run(ctx context.Context) error {
	switch {
	case t.Visits.Search:
		return t.search(ctx)
	case t.Event != "":
		return t.story(ctx)
	}
	return t.visit(ctx, t.plan(t.Visits.Plan.Rate), true)
}

// visit makes the visits of a plan.
func (t *trip) visit(ctx context.Context, p visitor.Plan, probe bool) (err error) {
	t.visits, err = t.send(ctx, t.order(p, probe))
	t.add()
	return err
}

// add counts the visits of the last schedule.
func (t *trip) add() {
	t.total += len(t.visits.Visits)
	for _, all := range [][]visitor.Visit{t.visits.Visits, t.visits.Probes} {
		for _, x := range all {
			t.received += uint64(x.Bytes)
		}
	}
}

// report sets the run's metrics, its proof and the reasons why it does not count.
func (t *trip) report(run *result.Run, d site.Counters) {
	run.Site, run.Failed = t.visits.Describe()
	s := run.Site
	s.Nodes, s.Steps = d.Nodes, t.steps
	cpu := d.Director.CPU
	for _, n := range d.Nodes {
		cpu += n.CPU
	}
	if t.path.Gateways > 1 {
		s.Director = &d.Director
	}
	for _, e := range t.events {
		at := e.at.Sub(time.Unix(0, t.visits.Begin))
		s.Events = append(s.Events, result.SiteEvent{At: at.Seconds(), What: e.what})
	}
	run.Metrics = map[result.Metric]float64{result.CPUPerVisit: cpu / float64(max(1, t.total))}
	wrong := site.ProveFamily(t.path, d, t.received)
	run.Proof = cmp.Or(wrong, site.Prove(t.path, d, t.received))
	if wrong != nil || !run.Proof.OK && t.Event == "" {
		run.Invalid = append(run.Invalid, "the traffic did not take the path: "+missed(run.Proof))
	}
	if late := s.LatenessP99; late > maxVisitLateness.Seconds() {
		run.Invalid = append(run.Invalid, fmt.Sprintf("the visitors themselves were delayed: p99 lateness %.1f ms, "+
			"more than %.0f ms", 1e3*late, 1e3*maxVisitLateness.Seconds()))
		run.Disturbed = true
	}
	t.metrics(run)
}

// metrics sets the metrics of the visits.
func (t *trip) metrics(run *result.Run) {
	s := run.Site
	if t.Visits.Search {
		run.Metrics[result.KneeRate] = t.knee
		return
	}
	for m, x := range map[result.Metric]float64{result.VisitP50: s.Visit.P50, result.VisitP99: s.Visit.P99,
		result.FirstByteP50: s.FirstByte.P50, result.SlowestProbe: s.Probe.Max} {
		if x > 0 {
			run.Metrics[m] = x
		}
	}
	run.Metrics[result.FailedVisits] = float64(s.Failed)
	run.Metrics[result.Concurrent] = float64(s.Concurrent)
	if t.Event != "" {
		run.Metrics[result.Requests] = float64(s.Requests)
		run.Metrics[result.FailedRequests] = float64(s.FailedRequests)
	}
	if t.noticed > 0 {
		run.Metrics[result.NoticeTime] = t.noticed.Seconds()
	}
	if t.Visits.Plan.Count > 0 {
		run.Metrics[result.RunTime] = t.visits.Ended().Seconds()
	}
}
