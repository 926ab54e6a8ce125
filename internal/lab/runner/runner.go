// Package runner runs a suite: it builds every path in a separate world, drives
// the workloads in interleaved rounds, and returns a report. It computes no
// statistics and prints nothing.
//
// # Theory of operation
//
// All paths exist at the same time and are idle until their turn, so turns follow
// each other without delay. A round goes through the cases (a client and a
// workload) in random order. Within a case the baseline is first and last, with
// the paths in random order between. A run that fails, or does not pass its
// validity checks, is in the report but not in the figures.
package runner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"fairlead/internal/lab/machine"
	"fairlead/internal/lab/peer"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/stats"
	"fairlead/internal/lab/suite"
	"fairlead/internal/plan"
)

// Options are the options of a session.
type Options struct {
	Suite suite.Suite
	// Sessions is how often the whole session is repeated; 0 means once.
	Sessions int
	Seed     uint64
	Facts    plan.Facts
	// Version is Fairlead's version.
	Version string
	// Tools are external generators to drive over the same paths.
	Tools []string
	// Docker is a directory with programs of a Docker engine, which are preferred
	// to those in PATH.
	Docker string
	// Shared makes runs count in spite of other load on the machine. Laboratories
	// are the process ids of other running laboratories. The report contains both.
	Shared       bool
	Laboratories []int
	// Server and Client are two machines, one for each end of the wire. If both are
	// nil, everything happens on this machine. Machines describes the two.
	Server, Client machine.Machine
	Machines       []result.Machine
	// Omitted are the workloads that cannot be measured between the two.
	Omitted []result.Unavailable
	// Progress is called before and after each run.
	Progress func(Progress)
}

// Progress is the run that begins or has ended.
type Progress struct {
	// Session is 0 if there is only one.
	Session, Sessions int
	Round, Rounds     int
	Case              result.Case
	Ended             bool
}

// Runs returns the number of runs of all sessions if every path can be built, and an
// estimate of their duration.
func Runs(opt Options) (runs int, takes time.Duration) {
	s := &session{Options: opt}
	each := func(u unit, name string) {
		p := opt.Suite.Path(name)
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
	rounds, sessions := opt.Suite.Rounds, max(opt.Sessions, 1)
	takes = takes*time.Duration(rounds) + time.Duration(len(opt.Suite.Paths))*pathTime
	return runs * rounds * sessions, takes * time.Duration(sessions)
}

// session is one session, or all of a run as one.
type session struct {
	Options
	existing    map[string]*built
	unavailable []result.Unavailable
	runs        []result.Run
	// planned and repeated count the planned runs, and those that were repeated.
	planned, repeated int
	// number is that of the session among several, from 1; 0 if there is only one.
	number int
}

// ErrTakeDown means that hosts, processes or cgroups of the session may be left over.
var ErrTakeDown = errors.New("take the laboratory down")

// Run measures the suite. When ctx ends, it stops, removes everything and returns
// ctx's error. Returns ErrBaseline if the baseline cannot be built on this host, and
// ErrNothing if no other path can be built. If the removal failed, the error is also
// ErrTakeDown.
func Run(ctx context.Context, opt Options) (rep *result.Report, err error) {
	awake, wakefulness := KeepAwake()
	defer awake.Close()
	started := time.Now()
	s, err := sessions(ctx, opt)
	if err != nil {
		return nil, err
	}
	rep = &result.Report{
		Format: result.Format, Suite: s.Suite.Name, Question: s.Suite.Question,
		Started: started.UTC().Format(time.RFC3339), Seed: s.Seed, Rounds: s.Suite.Rounds,
		Duration: s.Suite.Duration.Seconds(), Paths: s.built(), Host: hostFacts(opt), Runs: s.runs,
		Unavailable: slices.Concat(s.Omitted, s.unavailable), Published: s.Suite.Published,
		Shared: s.Shared, Laboratories: s.Laboratories,
		Machines: s.Machines, Family: s.Suite.Family, Netem: s.Suite.Netem,
	}
	if opt.Sessions > 1 {
		rep.Sessions = opt.Sessions
	}
	if s.divided() {
		rep.Host = s.Machines[0].Host
		rep.Differences = result.Differences(s.Machines[0], s.Machines[1])
	}
	rep.Host.Settings["cpu_dma_latency"] = wakefulness
	rep.Summary = stats.Summarize(rep.Runs, s.Suite.Baseline, s.Seed)
	rep.Steps = stats.Steps(rep.Runs, s.Suite.Baseline, s.steps(), s.Seed)
	return rep, nil
}

// ErrBaseline means that the baseline cannot be built, so nothing can be compared.
var ErrBaseline = errors.New("baseline")

// build builds every path. A path that cannot be built is listed with the reason
// and omitted, unless nothing could be compared without it.
func (s *session) build(ctx context.Context) error {
	for _, name := range s.Suite.Paths {
		p := s.Suite.Path(name)
		why, failed := s.unavailableHere(ctx, p), false
		if why == "" {
			failed = true
			b, err := s.path(ctx, p)
			if err == nil {
				s.existing[name] = b // even if ctx has ended: close takes it down
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
			return fmt.Errorf("the %w %s cannot be built on this host: %s", ErrBaseline, name, why)
		}
		s.unavailable = append(s.unavailable, result.Unavailable{Path: name, Reason: why, Failed: failed})
	}
	return s.nothingToCompare()
}

// ErrNothing means that only the baseline can be built.
var ErrNothing = errors.New("no path but the baseline can be built on this host")

// nothingToCompare returns ErrNothing if only the baseline could be built, unless
// the user asked for nothing else.
func (s *session) nothingToCompare() error {
	if len(s.existing) > 1 || len(s.Suite.Paths) < 2 {
		return nil
	}
	var reasons []string
	for _, u := range s.unavailable {
		reasons = append(reasons, u.Path+": "+u.Reason)
	}
	return fmt.Errorf("%w: %s", ErrNothing, strings.Join(reasons, "; "))
}

// path builds the path, or uses the engine of a path that differs only in its number
// of ports.
func (s *session) path(ctx context.Context, p suite.Path) (*built, error) {
	if s.divided() {
		return s.buildParts(ctx, p)
	}
	for _, b := range s.existing {
		if p.Ports > 1 && b.Path.Plain == p.Plain && b.Path.MTU == p.MTU {
			return whole(b.Rig.Offer(p), s.Suite), nil
		}
	}
	r, err := rig.New(ctx, p, peer.Maker(p), rig.Options{Suite: s.Suite, Facts: s.Facts, Docker: s.Docker})
	if err != nil {
		return nil, err
	}
	return whole(r, s.Suite), nil
}

// unavailableHere returns why the path cannot be built on the machines of the session;
// "" if it can.
func (s *session) unavailableHere(ctx context.Context, p suite.Path) string {
	if !s.divided() {
		return peer.Unavailable(p, s.Facts, s.Docker)
	}
	if why := p.Undivided(); why != "" {
		return why
	}
	if why := p.WithoutNetem(); why != "" && s.Suite.Netem != nil {
		return why
	}
	why, err := s.Server.Unavailable(ctx, p.Name, p.Family)
	if err == nil && why == "" && p.OnBoth() {
		why, err = s.Client.Unavailable(ctx, p.Name, p.Family)
	}
	if err != nil {
		why = err.Error()
	}
	return why
}

// noteUnreached lists a path with the clients for which it has no figures.
func (s *session) noteUnreached(p suite.Path) {
	for _, c := range s.Suite.Clients {
		if !p.Reaches(c) {
			s.unavailable = append(s.unavailable, result.Unavailable{Path: p.Name,
				Reason: fmt.Sprintf("the client %s cannot reach it", c)})
			continue
		}
		for _, w := range s.Suite.Workloads {
			if why := p.Misanswers(c, w); why != "" {
				s.unavailable = append(s.unavailable, result.Unavailable{Path: p.Name,
					Reason: fmt.Sprintf("%s of the client %s: %s", w.Name, c, why)})
			}
		}
	}
}

// built lists the paths that were built, in the suite's order.
func (s *session) built() []string {
	return slices.DeleteFunc(slices.Clone(s.Suite.Paths), func(name string) bool { return s.existing[name] == nil })
}

// steps returns the steps whose paths were built, each over the nearest earlier
// one that was.
func (s *session) steps() []result.Step {
	over := map[string]string{}
	for _, step := range s.Suite.Steps {
		over[step.Path] = step.Over
	}
	var all []result.Step
	for _, step := range s.Suite.Steps {
		if s.existing[step.Path] == nil {
			continue
		}
		for step.Over != "" && s.existing[step.Over] == nil {
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
				if !units[i].compares() && (turn.Half == 2 || !units[i].goes(s.existing[turn.Path].Path)) {
					continue // a schedule always contains a baseline
				}
				if err := s.turn(ctx, units[i], round+1, turn); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// turn makes one run, and repeats it if other load disturbs it. A failure of the
// path is recorded in the run; an error is returned only if the session itself
// ends.
func (s *session) turn(ctx context.Context, u unit, round int, t stats.Turn) error {
	workload, tool := u.load.name()
	progress := Progress{Session: s.number, Sessions: s.Sessions, Round: round, Rounds: s.Suite.Rounds,
		Case: result.Case{Path: t.Path, Client: u.client, Workload: workload, Tool: tool}}
	s.report(progress)
	for try := 1; ; try++ {
		run := u.load.run(ctx, s.existing[t.Path], u.client)
		if err := ctx.Err(); err != nil {
			return err
		}
		run.Round, run.Half, run.Order = round, t.Half, t.Order
		if why := s.busy(run); len(why) > 0 {
			run.Invalid, run.Disturbed = append(run.Invalid, why...), true
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
	for _, b := range s.existing {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}
