// Package runner carries a suite out: it builds every path in a world of its
// own, drives the workloads in interleaved rounds, and hands over a report.
// It draws no statistics and prints nothing.
//
// Theory of operation. All paths stand ready at the same time and idle until
// their turn, so that turns can follow each other at once. A round goes
// through the cases (a client and a workload) in random order; within a case
// the baseline comes first and last and the paths in random order between.
// A run that fails or does not pass its gates stays in the report and out of
// the figures.
package runner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/report"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"
	"fairlead/internal/lab/suite"
	"fairlead/internal/plan"
)

// Options is what a session needs to know.
type Options struct {
	Suite suite.Suite
	Seed  uint64
	Facts plan.Facts
	// Version is Fairlead's own.
	Version string
	// Tools are foreign generators to drive over the same paths.
	Tools []string
	// Docker is a directory with the programs of a Docker engine that go before
	// those in PATH.
	Docker string
	// Shared counts runs whatever load other processes put on the machine, and
	// Laboratories are the others that it met; the report says both.
	Shared       bool
	Laboratories []int
	// Progress is called before and after each run.
	Progress func(Progress)
}

// Progress says which run begins or has ended.
type Progress struct {
	Round, Rounds int
	Case          result.Case
	Ended         bool
}

// Runs returns how many runs a session makes when every path can be built, and
// an estimate of how long it takes.
func Runs(opt Options) (runs int, takes time.Duration) {
	s := &session{Options: opt}
	each := func(u unit, name string) {
		p, _ := suite.FindPath(name)
		if u.goes(p) {
			runs++
			takes += u.lasts(p, opt.Suite)
		}
	}
	for _, u := range s.units() {
		for _, name := range opt.Suite.Paths {
			each(u, name)
		}
		if u.compares() {
			each(u, opt.Suite.Baseline) // its second half
		}
	}
	rounds := opt.Suite.Rounds
	return runs * rounds, takes*time.Duration(rounds) + time.Duration(len(opt.Suite.Paths))*pathTime
}

// session is one Run.
type session struct {
	Options
	rigs        map[string]*rig
	unavailable []result.Unavailable
	runs        []result.Run
	// planned and repeated count the runs, and those made once more.
	planned, repeated int
}

// ErrTakeDown means that something of the session may be left.
var ErrTakeDown = errors.New("take the laboratory down")

// Run measures the suite. When ctx ends it stops, takes everything down and
// returns ctx's error. Whatever the end, an error that is ErrTakeDown says
// that taking down failed.
func Run(ctx context.Context, opt Options) (rep *result.Report, err error) {
	s := &session{Options: opt, rigs: map[string]*rig{}}
	s.planned, _ = Runs(opt)
	defer func() {
		if e := s.close(); e != nil {
			err = errors.Join(err, fmt.Errorf("%w: %w", ErrTakeDown, e))
		}
	}()
	awake, wakefulness := keepAwake()
	defer awake.Close()
	started := time.Now()
	if err := s.build(ctx); err != nil {
		return nil, err
	}
	if err := s.rounds(ctx); err != nil {
		return nil, err
	}
	rep = &result.Report{
		Format: report.Format, Suite: s.Suite.Name, Question: s.Suite.Question,
		Started: started.UTC().Format(time.RFC3339), Seed: s.Seed, Rounds: s.Suite.Rounds,
		Duration: s.Suite.Duration.Seconds(), Paths: s.built(), Host: hostFacts(opt), Runs: s.runs,
		Unavailable: s.unavailable, Published: s.Suite.Published,
		Shared: s.Shared, Laboratories: s.Laboratories,
	}
	rep.Host.Settings["cpu_dma_latency"] = wakefulness
	rep.Summary = stats.Summarize(rep.Runs, s.Suite.Baseline, s.Seed)
	rep.Steps = stats.Steps(rep.Runs, s.Suite.Baseline, s.steps(), s.Seed)
	return rep, nil
}

// Sweep removes the cgroups that killed laboratories left behind, and returns
// their names. Namespaces are already gone: only the dead process kept them open.
func Sweep() ([]string, error) { return ledger.Sweep() }

// ErrBaseline means that there is nothing to compare with.
var ErrBaseline = errors.New("baseline")

// build makes every path; one that cannot be built is listed with the reason
// and left out, unless nothing could be compared without it.
func (s *session) build(ctx context.Context) error {
	for _, name := range s.Suite.Paths {
		p, _ := suite.FindPath(name)
		why, failed := Unavailable(p, s.Facts, s.Docker), false
		if why == "" {
			failed = true
			r, err := s.rig(ctx, p)
			if err == nil {
				s.rigs[name] = r // even if ctx has ended: close takes it down
				s.noteUnreached(p)
			}
			if ctx.Err() != nil {
				return errors.Join(ctx.Err(), err)
			}
			if err == nil {
				continue
			}
			why = err.Error()
		}
		if name == s.Suite.Baseline {
			return fmt.Errorf("the %w %s cannot be built here: %s", ErrBaseline, name, why)
		}
		s.unavailable = append(s.unavailable, result.Unavailable{Path: name, Reason: why, Failed: failed})
	}
	return s.nothingToCompare()
}

// ErrNothing means that only the baseline is left.
var ErrNothing = errors.New("no path but the baseline can be built here")

// nothingToCompare refuses to measure the baseline alone, unless nothing else was
// asked for.
func (s *session) nothingToCompare() error {
	if len(s.rigs) > 1 || len(s.Suite.Paths) < 2 {
		return nil
	}
	var reasons []string
	for _, u := range s.unavailable {
		reasons = append(reasons, u.Path+": "+u.Reason)
	}
	return fmt.Errorf("%w: %s", ErrNothing, strings.Join(reasons, "; "))
}

// rig builds the path, or borrows the engine of one that differs only in its
// number of ports.
func (s *session) rig(ctx context.Context, p suite.Path) (*rig, error) {
	for _, r := range s.rigs {
		if p.Ports > 1 && r.path.Plain == p.Plain && r.path.MTU == p.MTU {
			return r.offer(p), nil
		}
	}
	return build(ctx, p, s.Options)
}

// noteUnreached lists a path under the clients for which it has no figures.
func (s *session) noteUnreached(p suite.Path) {
	for _, c := range s.Suite.Clients {
		if !p.Reaches(c) {
			s.unavailable = append(s.unavailable, result.Unavailable{Path: p.Name, Reason: fmt.Sprintf("the client %s cannot reach it", c)})
		}
	}
}

// built lists the paths that stand, in the suite's order.
func (s *session) built() []string {
	return slices.DeleteFunc(slices.Clone(s.Suite.Paths), func(name string) bool { return s.rigs[name] == nil })
}

// steps are those whose paths stand, each over the nearest before it that
// does.
func (s *session) steps() []result.Step {
	over := map[string]string{}
	for _, step := range s.Suite.Steps {
		over[step.Path] = step.Over
	}
	var all []result.Step
	for _, step := range s.Suite.Steps {
		if s.rigs[step.Path] == nil {
			continue
		}
		for step.Over != "" && s.rigs[step.Over] == nil {
			step.Over = over[step.Over]
		}
		all = append(all, result.Step{Name: step.Name, Path: step.Path, Over: step.Over})
	}
	return all
}

func (s *session) rounds(ctx context.Context) error {
	units := s.units()
	schedules := make([][][]stats.Turn, len(units))
	for i, u := range units {
		schedules[i] = stats.Schedule(s.Suite.Baseline, s.paths(u), s.Suite.Rounds, s.Seed^hash(u))
	}
	order := rand.New(rand.NewPCG(s.Seed, 1))
	for round := range s.Suite.Rounds {
		for _, i := range order.Perm(len(units)) {
			for _, turn := range schedules[i][round] {
				if !units[i].compares() && (turn.Half == 2 || !units[i].goes(s.rigs[turn.Path].path)) {
					continue // there is always a baseline in a schedule
				}
				if err := s.turn(ctx, units[i], round+1, turn); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// turn makes one run, and makes it again where the machine disturbs it. A
// failure of the path is the run's; only the session's own end is an error.
func (s *session) turn(ctx context.Context, u unit, round int, t stats.Turn) error {
	workload, tool := u.load.name()
	progress := Progress{Round: round, Rounds: s.Suite.Rounds,
		Case: result.Case{Path: t.Path, Client: u.client, Workload: workload, Tool: tool}}
	s.report(progress)
	for try := 1; ; try++ {
		run := u.load.run(ctx, s.rigs[t.Path], u.client)
		if err := ctx.Err(); err != nil {
			return err
		}
		run.Round, run.Half, run.Order = round, t.Half, t.Order
		if why := s.busy(run); why != "" {
			run.Invalid, run.Disturbed = append(run.Invalid, why), true
		}
		s.runs = append(s.runs, run)
		if !s.again(run, try) {
			break
		}
	}
	progress.Ended = true
	s.report(progress)
	return nil
}

func (s *session) report(p Progress) {
	if s.Progress != nil {
		s.Progress(p)
	}
}

func (s *session) close() error {
	var errs []error
	for _, r := range s.rigs {
		errs = append(errs, r.close())
	}
	return errors.Join(errs...)
}
