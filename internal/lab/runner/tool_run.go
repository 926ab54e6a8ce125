package runner

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/load"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
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
	r := b.Rig
	run := result.Run{Case: result.Case{Path: r.Path.Name, Client: c, Workload: f.Workload.Name, Tool: f.Tool.Name}}
	server, err := f.serve(ctx, r)
	if err != nil {
		return invalid(run, err)
	}
	defer func() { _ = server.Kill() }() // its exit status says only that it was killed
	seconds := max(1, int(math.Ceil(f.Spec.Duration.Seconds())))
	before, err := r.Count(ctx, c)
	if err != nil {
		return invalid(run, err)
	}
	window, err := ledger.Begin(r.Parties(c))
	if err != nil {
		return invalid(run, err)
	}
	started := time.Now()
	out, err := f.drive(ctx, r, c, seconds)
	run.Seconds = time.Since(started).Seconds()
	run.Raw = string(out)
	if err != nil {
		return invalid(run, err)
	}
	l, gates, err := window.End()
	if err != nil {
		return invalid(run, err)
	}
	after, err := r.Count(ctx, c)
	if err != nil {
		return invalid(run, err)
	}
	run.Ledger = &l
	if run.Metrics, err = f.Read(f.Workload, out); err != nil {
		return invalid(run, fmt.Errorf("read %s: %w", f.Tool.Name, err))
	}
	stats.Derive(&run)
	run.Proof = r.Prove(rig.Window{Client: c, Before: before, After: after, Ledger: run.Ledger,
		Received: leastBytes(run.Metrics, seconds)})
	judge(&run, load.Measurement{}, gates)
	return run
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

// serve starts the server and waits until it listens. A proxy on the path accepts
// a client's connection earlier, and could then only reset it.
func (f foreignLoad) serve(ctx context.Context, r *rig.Rig) (*child.Process, error) {
	args := f.Server(f.Workload)
	path, err := program.Find(args[0])
	if err != nil {
		return nil, err
	}
	listening := program.Expect(f.Ready)
	cmd := exec.Command(path, args[1:]...)
	cmd.Stdout, cmd.Stderr = listening, listening
	if f.Files != nil {
		files, err := f.Files(r.Path.Family)
		if err != nil {
			return nil, err
		}
		for _, content := range files {
			file, err := program.InMemory(content)
			if err != nil {
				return nil, err
			}
			defer file.Close()
			cmd.ExtraFiles = append(cmd.ExtraFiles, file)
		}
	}
	at := r.ServerPlace()
	at.Contained = false // as process 1 of a PID namespace, some tools ignore signals
	p, err := child.Start(ctx, cmd, at)
	if err != nil {
		return nil, err
	}
	if f.Ready == "" {
		go listening.Watch(ctx, p, f.Silent)
	}
	select {
	case <-listening.Seen():
		return p, nil
	case <-p.Done():
		return nil, fmt.Errorf("start %s: it ended: %s", args[0], listening.Text())
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// toolGrace is how much longer than its window a tool may take.
const toolGrace = 10 * time.Second

func (f foreignLoad) drive(ctx context.Context, r *rig.Rig, c result.Client, seconds int) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second+toolGrace)
	defer cancel()
	args := f.Client(f.Workload, r.Dial(c, 0).Addr().String(), seconds)
	path, err := program.Find(args[0])
	if err != nil {
		return nil, err
	}
	var out, errs bytes.Buffer
	cmd := exec.Command(path, args[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	at := r.ClientPlace(c)
	at.Contained = false
	p, err := child.Start(ctx, cmd, at)
	if err != nil {
		return nil, err
	}
	if err := p.Wait(); err != nil {
		return out.Bytes(), fmt.Errorf("%s: %w: %s%s", strings.Join(args, " "), err, out.Bytes(), errs.Bytes())
	}
	return out.Bytes(), nil
}
