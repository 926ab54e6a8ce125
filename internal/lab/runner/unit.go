package runner

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/tool"
)

// unit is a case without its path; within one round the paths are compared for one
// unit.
type unit struct {
	client result.Client
	load   workloadRunner
}

// workloadRunner drives one workload, with Fairlead's generator or an external
// one.
type workloadRunner interface {
	name() (workload, tool string)
	what() suite.Workload
	run(ctx context.Context, b *built, c result.Client) result.Run
}

// own is a workload that Fairlead drives itself.
type own struct{ suite.Workload }

func (o own) name() (workload, tool string) { return o.Name, result.OwnTool }
func (o own) what() suite.Workload          { return o.Workload }

// native is Fairlead's generator.
type native struct{ own }

func (n native) run(ctx context.Context, b *built, c result.Client) result.Run {
	return measure(ctx, b, c, n.Workload)
}

// Estimates of the time of a run in addition to its window, in this order: starting
// and stopping the load and reading counters; one flow; one connection of a workload
// with a count; starting a container; the failure and return of a real server;
// building and removing a path; a web site; hosts with a virtual address, which fails
// over.
const (
	runOverhead   = 200 * time.Millisecond
	flowTime      = 10 * time.Microsecond
	connectTime   = 60 * time.Microsecond
	containerTime = 3 * time.Second
	failureTime   = 8 * time.Second
	pathTime      = 500 * time.Millisecond
	siteTime      = 5 * time.Second
	holderTime    = 9 * time.Second
)

// searchSteps is about how many rates a search of the knee tries.
const searchSteps = 10

// lasts estimates how long one run of the unit through the path takes.
func (u unit) lasts(p suite.Path, s suite.Suite) time.Duration {
	w := u.load.what()
	switch {
	case w.Visits != nil && w.Visits.Search:
		return siteTime + searchSteps*s.Duration
	case w.Visits != nil && w.Visits.Plan.Count > 0:
		return siteTime + time.Duration(float64(w.Visits.Plan.Count)/w.Visits.Plan.Rate*float64(time.Second))
	case w.Visits != nil:
		return siteTime + s.Duration
	case w.Event.OfHolder():
		return holderTime + 3*s.Duration
	case w.Event != "":
		return failureTime
	case w.Start != "":
		return containerTime + time.Duration(p.Ports)*p.Peer.PortTime
	case w.Spec.Count > 0:
		return time.Duration(w.Spec.Count)*connectTime + runOverhead
	case w.Spec.Attempts > 0:
		return time.Duration(w.Spec.Attempts)*connectTime + pathTime
	}
	return s.Warmup + s.Duration + time.Duration(w.Spec.Flows)*flowTime + runOverhead
}

// goes reports whether the unit can be measured on the path. Metrics without
// ratios are measured for clients across the wire only.
func (u unit) goes(p suite.Path) bool {
	w := u.load.what()
	return p.Reaches(u.client) && p.Supports(w) && p.Misanswers(u.client, w) == "" &&
		(u.compares() || u.client == result.Remote)
}

// compares reports whether the paths are compared with the baseline, which is
// then measured twice.
func (u unit) compares() bool { return u.load.what().Event == "" }

// paths returns the paths on which the unit is measured.
func (s *session) paths(u unit) []string {
	return slices.DeleteFunc(s.built(), func(name string) bool { return !u.goes(s.existing[name].Path) })
}

func (s *session) units() []unit {
	var all []unit
	for _, c := range s.Suite.Clients {
		for _, w := range s.Suite.Workloads {
			if load := s.special(w); load != nil {
				all = append(all, unit{c, load})
				continue
			}
			w.Spec.Duration, w.Spec.Warmup = s.Suite.Duration, s.Suite.Warmup
			all = append(all, unit{c, native{own{w}}})
			for _, t := range s.Tools {
				if known, ok := tool.For(t, w); ok {
					all = append(all, unit{c, foreignLoad{known, w}})
				}
			}
		}
	}
	return all
}

// special returns what drives a workload that needs more than the generator and a path;
// nil for others.
func (s *session) special(w suite.Workload) workloadRunner {
	switch o := (own{w}); {
	case w.Start != "":
		return starting{o}
	case w.Visits != nil:
		return visiting{o, s.Suite.Duration, s.Seed, s.Facts}
	case w.Event.OfHolder():
		return holding{o, s.Suite.Duration, s.Facts}
	case w.Event != "":
		return failing{o, s.Suite.Duration, s.Facts}
	case w.Fresh:
		return fresh{o, s.Options}
	}
	return nil
}

func hash(u unit) uint64 {
	workload, tool := u.load.name()
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %s %s", u.client, workload, tool)
	return h.Sum64()
}

// Cases lists what a session of the suite measures, as far as this is known
// before the paths are built.
func Cases(s suite.Suite, tools []string) []result.Case {
	var all []result.Case
	for _, u := range (&session{Options: Options{Suite: s, Tools: tools}}).units() {
		for _, name := range s.Paths {
			if u.goes(s.Path(name)) {
				w, t := u.load.name()
				all = append(all, result.Case{Path: name, Client: u.client, Workload: w, Tool: t})
			}
		}
	}
	return all
}
