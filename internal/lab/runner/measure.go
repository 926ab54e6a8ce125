package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/load"
	"fairlead/internal/lab/machine"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/stats"
	"fairlead/internal/lab/suite"
)

// The validity checks of a run, fixed before anything is measured.
const (
	// maxThrottled is the share of the window for which a CPU limit may stop the
	// laboratory.
	maxThrottled = 0.01
	// maxLateness is the limit for the generator's own p99 lateness at a fixed
	// rate, as a share of the measured median latency; for HTTP, whose figure is the
	// p99, as a share of that.
	maxLateness = 0.5
)

// measure runs one workload for one client through the path.
func measure(ctx context.Context, b *built, c result.Client, w suite.Workload) result.Run {
	run := result.Run{Case: result.Case{Path: b.Path.Name, Client: c, Workload: w.Name, Tool: result.OwnTool}}
	window := b.window(c)
	if err := window.prepare(ctx, c); err != nil {
		return invalid(run, err)
	}
	w.Spec.FlowAddrs = b.of(c).FlowAddrs()
	var changes *changes
	hooks := load.Hooks{
		Begin: func() error {
			changes = startChanges(ctx, b.Rig, w)
			return window.begin(ctx, c)
		},
		End: func() error {
			return errors.Join(window.end(ctx, w.Spec.Workload == load.HTTPIdle), changes.end())
		},
	}
	m, err := load.Run(ctx, b.of(c).Client(c), b.serverFor(c), b.dial(c, rig.PortOf(w.Spec)), w.Spec, hooks)
	if err != nil {
		return invalid(run, errors.Join(err, changes.abandon()))
	}
	run.Seconds, run.Latency, run.Metrics, run.Failed = m.Seconds, m.Latency, m.Metrics(), m.Reasons
	if window.memory > 0 {
		run.Metrics[result.Memory] = window.memory
	}
	window.account(&run)
	changes.report(&run)
	stats.Derive(&run)
	traffic := machine.Traffic{Client: c, Flows: w.Spec.Flows,
		Received: m.ClientTotals.ReceivedBytes + m.ServerTotals.ReceivedBytes,
		Requests: m.ClientTotals.Transactions, Served: m.ServerTotals.Transactions, Sources: m.Sources}
	if err := window.prove(ctx, traffic, &run); err != nil {
		return invalid(run, err)
	}
	judge(&run, m, window.gates...)
	if m.GeneratorBound() {
		run.Notes = append(run.Notes, result.GeneratorBound)
	}
	return run
}

// accounted performs a story, and sets the run's length and, if there are cgroups, its
// ledger.
func accounted(groups *ledger.Groups, run *result.Run, story func() error) (err error) {
	var window *ledger.Window
	if groups != nil {
		if window, err = ledger.Begin(groups.Parties()); err != nil {
			return err
		}
	}
	began := time.Now()
	if err = story(); err != nil {
		return err
	}
	run.Seconds = time.Since(began).Seconds()
	if window == nil {
		return nil
	}
	l, gates, err := window.End()
	if err != nil {
		return err
	}
	run.Ledger = &l
	disturbed(run, gates)
	return nil
}

func invalid(run result.Run, err error) result.Run {
	run.Invalid = append(run.Invalid, err.Error())
	return run
}

// disturbed records other load on a machine, and makes the run invalid if the machine was slowed down.
func disturbed(run *result.Run, g ledger.Gates) {
	var why []string
	if g.Throttled > maxThrottled*run.Seconds {
		why = append(why, fmt.Sprintf("a CPU limit stopped the laboratory for %.0f ms", 1000*g.Throttled))
	}
	if g.Thermal > 0 {
		why = append(why, "a CPU was throttled because of heat")
	}
	run.Invalid, run.Others = append(run.Invalid, why...), append(run.Others, g.Others...)
	run.Disturbed = run.Disturbed || len(why) > 0
}

// judge records the reasons why the run does not count.
func judge(run *result.Run, m load.Measurement, gates ...ledger.Gates) {
	for _, g := range gates {
		disturbed(run, g)
	}
	if m.Errors > 0 && m.Spec.Attempts == 0 {
		run.Invalid = append(run.Invalid, fmt.Sprintf("%d requests or connections failed", m.Errors))
	}
	if m.Latency != nil && m.Transactions == 0 {
		run.Invalid = append(run.Invalid, "no request was answered in the window")
	}
	limit := maxLateness * run.Metrics[result.LatencyP50]
	if m.Spec.Workload.HTTP() {
		limit = maxLateness * run.Metrics[result.LatencyP99]
	}
	if m.Spec.Rate > 0 && m.Latency != nil && m.LatenessP99 > limit {
		run.Invalid = append(run.Invalid,
			fmt.Sprintf("the generator itself was delayed: p99 lateness %.0f µs", 1e6*m.LatenessP99))
	}
	if run.Proof != nil && !run.Proof.OK {
		run.Invalid = append(run.Invalid, "the traffic did not take the path: "+missed(run.Proof))
	}
}

// missed names the counter for which a proof failed.
func missed(p *result.Proof) string {
	if p.Got >= p.Want {
		return p.Absent
	}
	return p.Counter
}
