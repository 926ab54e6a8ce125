package stats

import (
	"cmp"
	"hash/fnv"
	"maps"
	"math"
	"slices"

	"fairlead/internal/lab/result"
)

// group contains the runs that can be compared with each other: those with the same
// client, workload and tool.
type group struct {
	client         result.Client
	workload, tool string
	baseline       string
	rounds         map[place]*round
}

// place is a round of a session.
type place struct{ session, round int }

// round contains the runs of one group in one round.
type round struct {
	halves [2]*result.Run
	paths  map[string]*result.Run
}

// family is one metric of a group: the paths whose p-values are adjusted together.
type family struct {
	*group
	metric      result.Metric
	hasBaseline bool
	base        series
	paths       []series
}

// series contains the figures of one path in the order of the rounds.
type series struct {
	path   string
	values []float64
	logs   []float64 // of the ratio to the baseline; for the baseline, of half 2 over half 1
	// sessions are the sessions of the logs.
	sessions []int
	invalid  int
}

// groups sorts runs into groups, in a stable order.
func groups(runs []result.Run, baseline string) []*group {
	var all []*group
	for i := range runs {
		r := &runs[i]
		at := slices.IndexFunc(all, func(g *group) bool {
			return g.client == r.Client && g.workload == r.Workload && g.tool == r.Tool
		})
		if at < 0 {
			at = len(all)
			all = append(all, &group{client: r.Client, workload: r.Workload, tool: r.Tool,
				baseline: baseline, rounds: map[place]*round{}})
		}
		all[at].add(r)
	}
	slices.SortStableFunc(all, func(a, b *group) int {
		return cmp.Or(cmp.Compare(clientRank(a.client), clientRank(b.client)),
			cmp.Compare(a.client, b.client), cmp.Compare(a.workload, b.workload), cmp.Compare(a.tool, b.tool))
	})
	return all
}

// clientRank orders clients by distance, the farthest first.
func clientRank(c result.Client) int {
	if i := slices.Index(result.Clients, c); i >= 0 {
		return i
	}
	return math.MaxInt
}

// add adds a run. If a run was repeated within its round, the first valid one counts.
func (g *group) add(r *result.Run) {
	at := place{r.Session, r.Round}
	rd := g.rounds[at]
	if rd == nil {
		rd = &round{paths: map[string]*result.Run{}}
		g.rounds[at] = rd
	}
	if r.Path != g.baseline {
		rd.paths[r.Path] = firstValid(rd.paths[r.Path], r)
		return
	}
	half := min(max(r.Half, 1), 2) - 1
	rd.halves[half] = firstValid(rd.halves[half], r)
}

func firstValid(old, r *result.Run) *result.Run {
	if old != nil && len(old.Invalid) == 0 {
		return old
	}
	return r
}

// metrics lists the metrics that any run of the group has.
func (g *group) metrics() []result.Metric {
	var all []result.Metric
	for _, r := range g.all() {
		for m := range r.Metrics {
			if !slices.Contains(all, m) {
				all = append(all, m)
			}
		}
	}
	slices.Sort(all)
	return all
}

// all lists the runs of the group.
func (g *group) all() []*result.Run {
	var all []*result.Run
	for _, rd := range g.rounds {
		for _, h := range rd.halves {
			if h != nil {
				all = append(all, h)
			}
		}
		for _, r := range rd.paths {
			all = append(all, r)
		}
	}
	return all
}

// order lists the rounds, sorted.
func (g *group) order() []place {
	return slices.SortedFunc(maps.Keys(g.rounds), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.session, b.session), cmp.Compare(a.round, b.round))
	})
}

// kase returns the case of a path in the group.
func (g *group) kase(path string) result.Case {
	return result.Case{Path: path, Client: g.client, Workload: g.workload, Tool: g.tool}
}

// family returns the group's family of a metric. A path that has valid runs, but
// none with the metric, has no series.
func (g *group) family(m result.Metric) family {
	f := family{group: g, metric: m, base: g.series(g.baseline, m, true)}
	f.hasBaseline = !result.Absolute(m) && (len(f.base.values) > 0 || f.base.invalid > 0) && g.shows(g.baseline, m)
	for _, p := range g.paths() {
		if g.shows(p, m) {
			f.paths = append(f.paths, g.series(p, m, f.hasBaseline))
		}
	}
	return f
}

// paths lists the paths that were compared with the baseline, by name.
func (g *group) paths() []string {
	var paths []string
	for _, r := range g.all() {
		if r.Path != g.baseline && !slices.Contains(paths, r.Path) {
			paths = append(paths, r.Path)
		}
	}
	slices.Sort(paths)
	return paths
}

// shows returns false for a path that has valid runs, none of which has the metric. A
// path without any valid run counts as showing it.
func (g *group) shows(path string, m result.Metric) bool {
	valid := 0
	for _, rd := range g.rounds {
		runs := []*result.Run{rd.paths[path]}
		if path == g.baseline {
			runs = rd.halves[:]
		}
		for _, r := range runs {
			if r == nil || len(r.Invalid) > 0 {
				continue
			}
			if has(r, m) {
				return true
			}
			valid++
		}
	}
	return valid == 0
}

// series returns the series of one path. The baseline's value in a round is the mean
// of its halves. If against is true, a round counts only if the baseline is valid.
func (g *group) series(path string, m result.Metric, against bool) series {
	s := series{path: path}
	for _, n := range g.order() {
		diff, valid, took := g.compare(n, path, m, against)
		switch {
		case !took:
		case !valid:
			s.invalid++
		default:
			s.values = append(s.values, g.value(n, path, m))
			s.logs, s.sessions = append(s.logs, diff), append(s.sessions, n.session)
		}
	}
	return s
}

// compare returns the logarithm of the ratio of a path to the baseline in round n;
// for the baseline, of half 2 to half 1. took is false if the path was not measured in
// the round. If against is false, only the path itself must be valid.
func (g *group) compare(n place, path string, m result.Metric, against bool) (diff float64, valid, took bool) {
	rd := g.rounds[n]
	a, okA := logOf(rd.halves[0], m)
	b, okB := logOf(rd.halves[1], m)
	if path == g.baseline {
		return b - a, okA && okB, rd.halves[0] != nil || rd.halves[1] != nil
	}
	x, ok := logOf(rd.paths[path], m)
	return x - (a+b)/2, ok && (!against || okA && okB), rd.paths[path] != nil
}

// value returns the figure of a path in a round, which must be valid.
func (g *group) value(n place, path string, m result.Metric) float64 {
	rd := g.rounds[n]
	if path == g.baseline {
		return (rd.halves[0].Metrics[m] + rd.halves[1].Metrics[m]) / 2
	}
	return rd.paths[path].Metrics[m]
}

// seed returns a different seed for every series, so that an additional path or
// metric does not change the intervals of the others.
func (f family) seed(seed uint64, path string) [2]uint64 {
	h := fnv.New64a()
	for _, s := range []string{path, string(f.client), f.workload, f.tool, string(f.metric)} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	return [2]uint64{seed, h.Sum64()}
}

func has(r *result.Run, m result.Metric) bool {
	_, ok := r.Metrics[m]
	return ok
}
