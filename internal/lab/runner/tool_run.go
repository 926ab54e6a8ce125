package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"

	"golang.org/x/sys/unix"
)

// run starts the tool's server, runs its client for the window and reads its
// output.
func (f foreignLoad) run(ctx context.Context, r *rig, c result.Client) result.Run {
	run := result.Run{Case: result.Case{Path: r.path.Name, Client: c, Workload: f.Workload.Name, Tool: f.tool.name}}
	server, err := f.serve(ctx, r)
	if err != nil {
		return invalid(run, err)
	}
	defer func() { _ = server.Kill() }() // its exit status says only that it was killed
	seconds := max(1, int(math.Ceil(f.Spec.Duration.Seconds())))
	before, err := r.counters(ctx, c)
	if err != nil {
		return invalid(run, err)
	}
	window, err := ledger.Begin(r.parties(c))
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
	after, err := r.counters(ctx, c)
	if err != nil {
		return invalid(run, err)
	}
	run.Ledger = &l
	if run.Metrics, err = f.read(f.Workload, out); err != nil {
		return invalid(run, fmt.Errorf("read %s: %w", f.tool.name, err))
	}
	stats.Derive(&run)
	run.Proof = r.prove(c, before, after, leastBytes(run.Metrics, seconds), run.Ledger)
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
func (f foreignLoad) serve(ctx context.Context, r *rig) (*child.Process, error) {
	args := f.server(f.Workload)
	path, err := lookPath(args[0])
	if err != nil {
		return nil, err
	}
	listening := &waiter{want: f.ready, seen: make(chan struct{})}
	cmd := exec.Command(path, args[1:]...)
	cmd.Stdout, cmd.Stderr = listening, listening
	if f.config != "" {
		config, err := inMemory(f.config)
		if err != nil {
			return nil, err
		}
		defer config.Close()
		cmd.ExtraFiles = []*os.File{config}
	}
	at := r.serverPlace()
	at.Contained = false // as process 1 of a PID namespace, some tools ignore signals
	p, err := child.Start(ctx, cmd, at)
	if err != nil {
		return nil, err
	}
	if f.ready == "" {
		go listening.watch(ctx, p, f.silent)
	}
	select {
	case <-listening.seen:
		return p, nil
	case <-p.Done():
		return nil, fmt.Errorf("start %s: it ended: %s", args[0], listening.text())
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// inMemory returns a file in memory with the given content.
func inMemory(content string) (*os.File, error) {
	fd, err := unix.MemfdCreate("config", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "config")
	if _, err := f.WriteString(content); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// toolGrace is how much longer than its window a tool may take.
const toolGrace = 10 * time.Second

func (f foreignLoad) drive(ctx context.Context, r *rig, c result.Client, seconds int) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second+toolGrace)
	defer cancel()
	args := f.client(f.Workload, r.target(c, 0).Addr().String(), seconds)
	path, err := lookPath(args[0])
	if err != nil {
		return nil, err
	}
	var out, errs bytes.Buffer
	cmd := exec.Command(path, args[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	at := r.clientPlace(c)
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
