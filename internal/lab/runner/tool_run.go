package runner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/machine"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/tool"
)

// foreignLoad drives an external tool with a workload.
type foreignLoad struct {
	tool.Tool
	suite.Workload
}

func (f foreignLoad) name() (workload, tool string) { return f.Workload.Name, f.Tool.Name }

func (f foreignLoad) what() suite.Workload { return f.Workload }

// run starts the tool's server, runs its client for the window and reads its
// output.
func (f foreignLoad) run(ctx context.Context, b *built, c result.Client) result.Run {
	run := result.Run{Case: result.Case{Path: b.Path.Name, Client: c, Workload: f.Workload.Name, Tool: f.Tool.Name}}
	if err := b.server.Serve(ctx, c, f.Tool.Name, f.Workload.Name); err != nil {
		return invalid(run, err)
	}
	err := f.measure(ctx, b, &run)
	if err = errors.Join(err, b.server.EndServe(ctx)); err != nil {
		return invalid(run, err)
	}
	return run
}

// measure runs the tool's client for the window.
func (f foreignLoad) measure(ctx context.Context, b *built, run *result.Run) error {
	c, window := run.Client, b.window(run.Client)
	if err := window.prepare(ctx, c); err != nil {
		return err
	}
	if err := window.begin(ctx, c); err != nil {
		return err
	}
	seconds := max(1, int(math.Ceil(f.Spec.Duration.Seconds())))
	started := time.Now()
	out, failed := b.of(c).Drive(ctx, c, f.Tool.Name, f.Workload.Name, seconds)
	run.Seconds = time.Since(started).Seconds()
	run.Raw = string(out)
	if err := errors.Join(failed, window.end(ctx, false)); err != nil {
		return err
	}
	window.account(run)
	var err error
	if run.Metrics, err = f.Read(f.Workload, out); err != nil {
		return fmt.Errorf("read %s: %w", f.Tool.Name, err)
	}
	stats.Derive(run)
	traffic := machine.Traffic{Client: c, Received: leastBytes(run.Metrics, seconds)}
	if err := window.prove(ctx, traffic, run); err != nil {
		return err
	}
	judge(run, load.Measurement{}, window.gates...)
	return nil
}

// leastBytes returns the minimum number of received bytes that makes a tool's figures
// plausible: half of the number that the figures imply, because tools use their own
// clock and their own window.
func leastBytes(m map[result.Metric]float64, seconds int) uint64 {
	if bits := m[result.Throughput]; bits > 0 {
		return uint64(bits * float64(seconds) / 8 / 2)
	}
	if trip := max(m[result.LatencyP50], m[result.LatencyMean]); trip > 0 {
		const perRoundTrip = 2 // one byte in each direction
		return uint64(perRoundTrip * float64(seconds) / trip / 2)
	}
	return 1
}
