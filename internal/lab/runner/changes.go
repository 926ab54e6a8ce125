package runner

import (
	"context"
	"fmt"
	"time"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

// changes are changes of a gateway's configuration while it is measured. A nil pointer
// makes none.
type changes struct {
	rig    *rig.Rig
	maker  rig.Changing
	every  time.Duration
	began  time.Time
	cancel context.CancelFunc
	done   chan struct{}
	// made counts the changes; err is the error of the last one. Both are read after
	// done.
	made int
	err  error
	// seconds is the length of the window, took how long the last change took.
	seconds, took float64
}

// startChanges begins the workload's changes. It returns nil if it has none, or if the
// path has no gateway.
func startChanges(ctx context.Context, r *rig.Rig, w suite.Workload) *changes {
	if r == nil || w.Changes == 0 {
		return nil
	}
	maker, ok := r.Maker.(rig.Changing)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &changes{rig: r, maker: maker, every: time.Second / time.Duration(w.Changes), began: time.Now(),
		cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.run(ctx)
	}()
	return c
}

// run makes changes until the context ends.
func (c *changes) run(ctx context.Context) {
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if c.err = c.maker.Change(c.rig, c.made+1); c.err != nil {
			return
		}
		c.made++
	}
}

// abandon ends the changes and returns the error of the last one.
func (c *changes) abandon() error {
	if c == nil {
		return nil
	}
	c.cancel()
	<-c.done
	return c.err
}

// changeLimit is how long a gateway may take until it uses a changed configuration.
const changeLimit = 30 * time.Second

// end ends the changes at the end of the window. Then it makes one more, and waits
// until the gateway uses it.
func (c *changes) end() error {
	if c == nil {
		return nil
	}
	c.seconds = time.Since(c.began).Seconds()
	if err := c.abandon(); err != nil {
		return err
	}
	began := time.Now()
	if err := c.maker.Change(c.rig, c.made+1); err != nil {
		return err
	}
	for {
		used, err := c.maker.Changed(c.rig, c.made+1)
		c.took = time.Since(began).Seconds()
		switch {
		case err != nil:
			return err
		case used:
			return nil
		case c.took > changeLimit.Seconds():
			return fmt.Errorf("the gateway has not used a changed configuration within %s", changeLimit)
		}
	}
}

// report sets the run's figure. The run is invalid if far fewer changes were made than
// planned.
func (c *changes) report(run *result.Run) {
	if c == nil {
		return
	}
	run.Metrics[result.ChangeTime] = c.took
	if planned := c.seconds / c.every.Seconds(); float64(c.made) < planned/2 {
		run.Invalid = append(run.Invalid, fmt.Sprintf("only %d of %.0f changes were made", c.made, planned))
	}
}
