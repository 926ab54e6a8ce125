package runner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/stats"
	"fairlead/internal/lab/suite"
)

// starting measures a container's start.
type starting struct{ own }

// run starts a container with `docker run --rm`, and waits until it has answered
// on the last of its ports and has then ended.
func (s starting) run(ctx context.Context, path *built, c result.Client) result.Run {
	r := path.Rig
	run := result.Run{Case: result.Case{Path: r.Path.Name, Client: c, Workload: s.Name, Tool: result.OwnTool}}
	engine, ok := r.Maker.(rig.Containers)
	if !ok {
		return invalid(run, errors.New("the path has no container engine"))
	}
	window, err := ledger.Begin(r.Groups.Parties())
	if err != nil {
		return invalid(run, err)
	}
	b := &beginning{rig: r, engine: engine, client: c}
	err = b.start(ctx, s.Workload)
	l, gates, e := window.End()
	if err = errors.Join(err, e); err != nil {
		return invalid(run, errors.Join(err, b.end()))
	}
	run.Ledger, run.Seconds = &l, b.answered.Seconds()
	memory, err := engine.Memory(r)
	if err = errors.Join(err, b.end()); err != nil {
		return invalid(run, err)
	}
	run.Metrics = map[result.Metric]float64{
		result.StartTime: b.answered.Seconds(), result.RunTime: b.ended.Seconds(),
		result.Memory: memory.All, result.PublishMemory: memory.Publish, result.CPUPerOp: l.Busy - l.Steal,
	}
	stats.Derive(&run)
	run.Proof = engine.StartProof(r, memory)
	disturbed(&run, gates)
	if !run.Proof.OK {
		run.Invalid = append(run.Invalid, "the traffic did not take the path: "+missed(run.Proof))
	}
	return run
}

// beginning is one container from start to end.
type beginning struct {
	rig       *rig.Rig
	engine    rig.Containers
	client    result.Client
	container rig.Container
	// answered and ended are the times since `docker run` was started. ended
	// excludes the time for readings in between.
	answered, ended time.Duration
}

// start starts the container and waits for its answer.
func (b *beginning) start(ctx context.Context, w suite.Workload) error {
	answer := fmt.Sprintf("%016x", rand.Uint64())
	began := time.Now()
	c, target, err := b.engine.StartAnswerer(ctx, b.rig, w.Start, answer)
	if err != nil {
		return err
	}
	b.container = c
	err = b.rig.Ask(b.client, string(w.Start), target, answer)
	b.answered = time.Since(began)
	return err
}

// end makes the container end and waits until docker reports it.
func (b *beginning) end() error {
	if b.container == nil {
		return nil
	}
	began := time.Now()
	err := b.container.End()
	b.ended = b.answered + time.Since(began)
	return err
}
