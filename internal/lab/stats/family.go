package stats

import (
	"cmp"
	"hash/fnv"
	"math"
	"slices"

	"fairlead/internal/lab/result"
)

// group holds the runs that can be compared with each other: one client, one
// workload, one tool.
type group struct {
	client         result.Client
	workload, tool string
	baseline       string
	rounds         map[int]*round
}

// round holds the runs of one group in one round.
type round struct {
	halves [2]*result.Run
	paths  map[string]*result.Run
}

// family is a group seen through one metric: the paths whose p-values are
// adjusted together.
type family struct {
	*group
	metric      result.Metric
	hasBaseline bool
	base        series
	paths       []series
}

// series is what one path showed, round by round.
type series struct {
	path    string
	values  []float64
	logs    []float64 // against the baseline; for the baseline half 2 over half 1
	invalid int
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
				baseline: baseline, rounds: map[int]*round{}})
		}
		all[at].add(r)
	}
	slices.SortStableFunc(all, func(a, b *group) int {
		return cmp.Or(cmp.Compare(clientRank(a.client), clientRank(b.client)),
			cmp.Compare(a.client, b.client), cmp.Compare(a.workload, b.workload), cmp.Compare(a.tool, b.tool))
	})
	return all
}

// clientRank puts the farthest client first, as a reader expects it.
func clientRank(c result.Client) int {
	if i := slices.Index([]result.Client{result.Remote, result.Local, result.Peer}, c); i >= 0 {
		return i
	}
	return math.MaxInt
}

// add files a run. Where a run was repeated within its round, the first
// valid one counts.
func (g *group) add(r *result.Run) {
	rd := g.rounds[r.Round]
	if rd == nil {
		rd = &round{paths: map[string]*result.Run{}}
		g.rounds[r.Round] = rd
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

// metrics lists what any run of the group holds.
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

// order lists the rounds in their order.
func (g *group) order() []int {
	var order []int
	for n := range g.rounds {
		order = append(order, n)
	}
	slices.Sort(order)
	return order
}

// kase names a path of the group.
func (g *group) kase(path string) result.Case {
	return result.Case{Path: path, Client: g.client, Workload: g.workload, Tool: g.tool}
}

// family sees the group through one metric. A path that ran validly but
// never showed the metric has no such figure, and so no series.
func (g *group) family(m result.Metric) family {
	f := family{group: g, metric: m, base: g.series(g.baseline, m, true)}
	f.hasBaseline = !result.Absolute(m) && (len(f.base.values) > 0 || f.base.invalid > 0)
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

// shows is false for a path whose valid runs all lack the metric; one without
// any valid run might have shown it.
func (g *group) shows(path string, m result.Metric) bool {
	valid := 0
	for _, rd := range g.rounds {
		r := rd.paths[path]
		if r == nil || len(r.Invalid) > 0 {
			continue
		}
		if has(r, m) {
			return true
		}
		valid++
	}
	return valid == 0
}

// series follows one path round by round. The baseline's value in a round is
// the mean of its halves.
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
			s.logs = append(s.logs, diff)
		}
	}
	return s
}

// compare gives the logarithm of one path over the baseline in round n; for
// the baseline, of half 2 over half 1. took is false when the path had no
// part in the round. Unless against the baseline, only the path itself has
// to be valid.
func (g *group) compare(n int, path string, m result.Metric, against bool) (diff float64, valid, took bool) {
	rd := g.rounds[n]
	a, okA := logOf(rd.halves[0], m)
	b, okB := logOf(rd.halves[1], m)
	if path == g.baseline {
		return b - a, okA && okB, rd.halves[0] != nil || rd.halves[1] != nil
	}
	x, ok := logOf(rd.paths[path], m)
	return x - (a+b)/2, ok && (!against || okA && okB), rd.paths[path] != nil
}

// value is the figure of a path in a round known to be valid.
func (g *group) value(n int, path string, m result.Metric) float64 {
	rd := g.rounds[n]
	if path == g.baseline {
		return (rd.halves[0].Metrics[m] + rd.halves[1].Metrics[m]) / 2
	}
	return rd.paths[path].Metrics[m]
}

// seed gives every series its own stream, so that adding a path or a metric
// leaves the intervals of the others as they were.
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
