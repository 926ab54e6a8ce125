package runner

import (
	"context"
	"errors"

	"fairlead/internal/lab/peer"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

// fresh drives a workload of the generator through a path that is built for one run:
// the run leaves connections behind, at the client and on the path, that the next one
// would find.
type fresh struct {
	own
	opt Options
}

// run implements workloadRunner.
func (f fresh) run(ctx context.Context, b *built, c result.Client) result.Run {
	run := result.Run{Case: result.Case{Path: b.Path.Name, Client: c, Workload: f.Name, Tool: result.OwnTool}}
	s, w := f.opt.Suite, f.Workload
	w.Fresh = false
	s.Clients, s.Workloads = []result.Client{c}, []suite.Workload{w}
	r, err := rig.New(ctx, b.Path, peer.Maker(b.Path), rig.Options{Suite: s, Facts: f.opt.Facts, Docker: f.opt.Docker,
		Group: b.Path.Name + "-" + f.Name})
	if err != nil {
		return invalid(run, err)
	}
	run = measure(ctx, whole(r, s), c, w)
	if err := r.Close(); err != nil {
		return invalid(run, errors.Join(ErrTakeDown, err))
	}
	return run
}
