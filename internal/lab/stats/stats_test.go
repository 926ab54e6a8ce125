package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fairlead/internal/lab/result"
)

// within reports whether the two halves differ by no more than the noise floor. Pure
// noise stays within it. A drift that is much larger than the noise exceeds it, e.g.
// if the baseline is always slow in its first half; then the session's figures are not
// reliable.
func (a AA) within() bool {
	return a.Rounds > 1 && math.Abs(math.Log(a.Ratio)) <= math.Log1p(a.Noise)
}

// halves returns the A/A comparison of every client, workload, tool and metric.
func halves(runs []result.Run, baseline string, seed uint64) []AA {
	var all []AA
	for _, g := range groups(runs, baseline) {
		for _, m := range g.metrics() {
			if f := g.family(m); f.hasBaseline {
				all = append(all, f.floor(seed))
			}
		}
	}
	return all
}

// session describes synthetic runs: every path's throughput is its true ratio times
// 10 Gbit/s, with a scatter of sigma per run on the logarithmic scale.
type session struct {
	rounds int
	sigma  float64
	drift  float64 // within a round, from its first run to its last
	ratios map[string]float64
}

func (s session) runs(seed uint64) []result.Run {
	rng := rand.New(rand.NewPCG(seed, 1))
	paths := []string{}
	for p := range s.ratios {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	var runs []result.Run
	for i, turns := range Schedule("host", paths, s.rounds, seed) {
		for _, turn := range turns {
			ratio := s.ratios[turn.Path]
			if turn.Path == "host" {
				ratio = 1
			}
			at := float64(turn.Order) / float64(len(turns)-1)
			x := 10e9 * ratio * math.Exp(s.sigma*rng.NormFloat64()+s.drift*at)
			runs = append(runs, run(turn.Path, i+1, turn.Half, x))
		}
	}
	return runs
}

func run(path string, round, half int, throughput float64) result.Run {
	return result.Run{
		Case:  result.Case{Path: path, Client: result.Remote, Workload: "tcp-bulk", Tool: "fairlead"},
		Round: round, Half: half, Seconds: 1,
		Metrics: map[result.Metric]float64{result.Throughput: throughput},
	}
}

func find(t *testing.T, rows []result.Summary, path string) result.Summary {
	t.Helper()
	i := slices.IndexFunc(rows, func(r result.Summary) bool { return r.Path == path })
	if i < 0 {
		t.Fatalf("no row for %s in %v", path, rows)
	}
	return rows[i]
}

func TestKnownRatiosAreRecovered(t *testing.T) {
	want := map[string]float64{"nat": 0.93, "proxy": 0.41, "twin": 1}
	rows := Summarize(session{rounds: 12, sigma: 0.01, ratios: want}.runs(7), "host", 7)
	for path, ratio := range want {
		row := find(t, rows, path)
		if row.RatioLow > ratio || row.RatioHigh < ratio {
			t.Errorf("%s: [%.3f %.3f] does not contain the true ratio %.3f", path, row.RatioLow, row.RatioHigh, ratio)
		}
		if row.Distinguishable != (path != "twin") {
			t.Errorf("%s: distinguishable = %v (noise %.4f, p %.4f)", path, row.Distinguishable, row.Noise, row.P)
		}
		if row.Low > row.Value || row.High < row.Value || math.Abs(row.Value/10e9-ratio) > 0.03 {
			t.Errorf("%s: value %g in [%g %g]", path, row.Value, row.Low, row.High)
		}
	}
	host := find(t, rows, "host")
	if rows[0] != host || host.Ratio != 1 || host.Distinguishable || host.Rounds != 12 {
		t.Errorf("the baseline's row is %+v", host)
	}
}

func TestSameSeedSameRows(t *testing.T) {
	runs := session{rounds: 8, sigma: 0.05, ratios: map[string]float64{"nat": 0.9, "proxy": 0.5}}.runs(3)
	a := Summarize(runs, "host", 3)
	slices.Reverse(runs)
	if b := Summarize(runs, "host", 3); !slices.Equal(a, b) {
		t.Errorf("the order of the runs changed the rows:\n%v\n%v", a, b)
	}
}

// TestCoverage simulates whole sessions. The intervals must contain the true value in
// 95 % of them, with a tolerance for chance.
func TestCoverage(t *testing.T) {
	const sessions = 400
	for _, rounds := range []int{3, 5, 6, 12} {
		t.Run(fmt.Sprint(rounds, " rounds"), func(t *testing.T) {
			covered, values := 0, 0
			for i := range sessions {
				runs := session{rounds: rounds, sigma: 0.03,
					ratios: map[string]float64{"nat": 0.8}}.runs(uint64(1000 + i))
				row := find(t, Summarize(runs, "host", 1), "nat")
				if row.RatioLow <= 0.8 && 0.8 <= row.RatioHigh {
					covered++
				}
				if row.Low <= 8e9 && 8e9 <= row.High {
					values++
				}
			}
			// Three standard deviations of a binomial at 0.95 over 400 are 3.3 %.
			// The interval also allows for a drift between the halves.
			if share := float64(covered) / sessions; share < 0.917 || share > 0.995 {
				t.Errorf("the ratio's interval contained the true value in %.3f of the sessions", share)
			}
			// Five observations can cover 93.75 %, three only 75 %.
			if share := float64(values) / sessions; rounds >= 5 && share < 0.90 {
				t.Errorf("the value's interval contained the true value in %.3f of the sessions", share)
			}
		})
	}
}

// TestIdenticalPathsAreRarelyDistinguished compares identical paths with the baseline:
// at most one in twenty may be reported as distinguishable.
func TestIdenticalPathsAreRarelyDistinguished(t *testing.T) {
	for _, rounds := range []int{2, 3, 5, 6, 12} {
		for _, drift := range []float64{0, 0.05} {
			t.Run(fmt.Sprint(rounds, " rounds, drift ", drift), func(t *testing.T) {
				distinguished, outside, n := 0, 0, 0
				for i := range 300 {
					s := session{rounds: rounds, sigma: 0.03, drift: drift, ratios: map[string]float64{"a": 1, "b": 1}}
					runs := s.runs(uint64(i))
					for _, row := range Summarize(runs, "host", 1)[1:] {
						n++
						if row.Distinguishable {
							distinguished++
						}
					}
					if !halves(runs, "host", 1)[0].within() {
						outside++
					}
				}
				if share := float64(distinguished) / float64(n); share > 0.05 {
					t.Errorf("%.3f of the identical paths were reported as different", share)
				}
				if drift == 0 && outside > 3 {
					t.Errorf("in %d of 300 sessions the halves differ by more than the noise floor", outside)
				}
			})
		}
	}
}

func TestRealDifferencesAreFound(t *testing.T) {
	found := 0
	for i := range 200 {
		s := session{rounds: 12, sigma: 0.02, ratios: map[string]float64{"nat": 0.95, "proxy": 0.5}}
		if find(t, Summarize(s.runs(uint64(i)), "host", 1), "nat").Distinguishable {
			found++
		}
	}
	if found < 190 {
		t.Errorf("a difference of 5 %% at a scatter of 2 %% was found in %d of 200 sessions", found)
	}
}

func TestDriftBetweenHalvesIsReported(t *testing.T) {
	s := session{rounds: 8, sigma: 0.001, drift: 0.2, ratios: map[string]float64{"nat": 1}}
	aa := halves(s.runs(1), "host", 1)[0]
	if aa.within() || aa.Low < 1.1 || aa.P > 0.01 {
		t.Errorf("a drift of 20 %% within the rounds passed as noise: %+v", aa)
	}
}

func TestInvalidRunsAreCounted(t *testing.T) {
	runs := session{rounds: 6, sigma: 0.01, ratios: map[string]float64{"nat": 0.9, "dead": 0.5}}.runs(1)
	for i, r := range runs {
		switch {
		case r.Path == "nat" && r.Round == 2, r.Path == "host" && r.Round == 3 && r.Half == 2:
			runs[i].Invalid = []string{"steal 12 %"}
		case r.Path == "dead":
			runs[i].Invalid, runs[i].Metrics = []string{"wrong path"}, nil
		}
	}
	rows := Summarize(runs, "host", 1)
	if row := find(t, rows, "nat"); row.Rounds != 4 || row.Invalid != 2 {
		t.Errorf("nat: %d rounds, %d invalid; want 4 and 2", row.Rounds, row.Invalid)
	}
	if row := find(t, rows, "host"); row.Rounds != 5 || row.Invalid != 1 {
		t.Errorf("host: %d rounds, %d invalid; want 5 and 1", row.Rounds, row.Invalid)
	}
	if row := find(t, rows, "dead"); row.Rounds != 0 || row.Invalid != 6 || row.Ratio != 0 || row.Distinguishable {
		t.Errorf("a path without any valid run: %+v", row)
	}
	points := PerRound(runs, "host", find(t, rows, "nat").Case, result.Throughput)
	valid := 0
	for _, p := range points {
		if p.Valid && p.Ratio > 0.8 {
			valid++
		}
	}
	if len(points) != 6 || valid != 4 {
		t.Errorf("per round: %v", points)
	}
}

func TestOneRoundIsNotDistinguishable(t *testing.T) {
	rows := Summarize(session{rounds: 1, ratios: map[string]float64{"nat": 0.1}}.runs(1), "host", 1)
	row := find(t, rows, "nat")
	if row.Distinguishable || row.RatioLow != row.Ratio || math.Abs(row.Ratio-0.1) > 1e-9 {
		t.Errorf("one round: %+v", row)
	}
}

func TestWithoutBaselineOnlyValues(t *testing.T) {
	runs := []result.Run{run("nat", 1, 0, 5), run("nat", 2, 0, 7)}
	rows := Summarize(runs, "host", 1)
	if len(rows) != 1 || rows[0].Value != 6 || rows[0].Baseline != "" || rows[0].Ratio != 0 {
		t.Errorf("got %+v", rows)
	}
	if len(halves(runs, "host", 1)) != 0 {
		t.Error("an A/A comparison without a baseline")
	}
}

func TestLossIsComparedAsPacketsSentPerArrival(t *testing.T) {
	lossy := func(path string, round, half int, loss float64) result.Run {
		r := run(path, round, half, 0)
		r.Metrics = map[result.Metric]float64{result.Loss: loss}
		return r
	}
	var runs []result.Run
	for i := 1; i <= 6; i++ {
		runs = append(runs, lossy("host", i, 1, 0), lossy("nat", i, 0, 0), lossy("proxy", i, 0, 0.5),
			lossy("host", i, 2, 0))
	}
	rows := Summarize(runs, "host", 1)
	if row := find(t, rows, "nat"); row.Ratio != 1 || row.Distinguishable || row.Value != 0 {
		t.Errorf("no loss on either side: %+v", row)
	}
	if row := find(t, rows, "proxy"); math.Abs(row.Ratio-2) > 1e-9 || !row.Distinguishable {
		t.Errorf("half lost against none: %+v", row)
	}
}

func TestDerive(t *testing.T) {
	r := run("host", 1, 1, 8e9)
	r.Ledger = &result.Ledger{Wall: 10, CPUs: 2, Busy: 11, Steal: 1, Idle: 9}
	r.Metrics[result.PacketRate] = 1e6
	Derive(&r)
	want := map[result.Metric]float64{
		result.IdleShare: 0.45, result.Efficiency: 8e9 / 0.55, result.CPUPerGB: 1, result.CPUPerOp: 1e-6,
	}
	for m, v := range want {
		if math.Abs(r.Metrics[m]/v-1) > 1e-9 {
			t.Errorf("%s = %g, want %g", m, r.Metrics[m], v)
		}
	}
	// The 4 s of other processes and the laboratory's 1 s reduce only the idle time.
	r = run("host", 1, 1, 8e9)
	r.Ledger = &result.Ledger{Wall: 10, CPUs: 2, Busy: 16, Steal: 1, Idle: 4, Other: 4, Laboratory: 1}
	r.Metrics[result.PacketRate] = 1e6
	Derive(&r)
	for m, v := range want {
		if math.Abs(r.Metrics[m]/v-1) > 1e-9 {
			t.Errorf("with other processes: %s = %g, want %g", m, r.Metrics[m], v)
		}
	}
	r.Metrics[result.CPUPerGB] = 42
	if Derive(&r); r.Metrics[result.CPUPerGB] != 42 {
		t.Error("a measured figure was overwritten")
	}
}

// TestDeriveAgreesWithPublishedFigures uses the figures of docker-networking-on-linux:
// 42, 54 and 70 Gbit/s at 14, 49 and 49 % idle, host 2.8 and 1.3 times as efficient.
func TestDeriveAgreesWithPublishedFigures(t *testing.T) {
	efficiency := func(rate, idle float64) float64 {
		r := run("x", 1, 0, rate)
		r.Ledger = &result.Ledger{Wall: 1, Busy: 4 * (1 - idle), Idle: 4 * idle}
		Derive(&r)
		return r.Metrics[result.Efficiency]
	}
	host := efficiency(70, 0.49)
	if r := host / efficiency(42, 0.14); math.Abs(r-2.8) > 0.05 {
		t.Errorf("host over docker-proxy: %.2f", r)
	}
	if r := host / efficiency(54, 0.49); math.Abs(r-1.3) > 0.05 {
		t.Errorf("host over NAT: %.2f", r)
	}
}

func TestSchedule(t *testing.T) {
	paths := []string{"host", "nat", "proxy", "ebpf"}
	rounds := Schedule("host", paths, 40, 7)
	firsts := map[string]bool{}
	for _, turns := range rounds {
		first, last := turns[0], turns[len(turns)-1]
		if len(turns) != 5 || first != (Turn{"host", 1, 0}) || last != (Turn{"host", 2, 4}) {
			t.Fatalf("a round is %v", turns)
		}
		names := []string{}
		for i, turn := range turns[1:4] {
			names = append(names, turn.Path)
			if turn.Order != i+1 || turn.Half != 0 {
				t.Fatalf("a round is %v", turns)
			}
		}
		firsts[names[0]] = true
		if slices.Sort(names); !slices.Equal(names, []string{"ebpf", "nat", "proxy"}) {
			t.Fatalf("a round is %v", turns)
		}
	}
	if len(firsts) != 3 {
		t.Errorf("in 40 rounds only %v came first", firsts)
	}
	if more := Schedule("host", paths, 50, 7); !slices.EqualFunc(rounds, more[:40], slices.Equal[[]Turn]) {
		t.Error("more rounds changed the earlier ones")
	}
}

// figures returns runs of host, nat and proxy with given figures.
func figures(m result.Metric, rounds int, of func(round int, path string) float64) (runs []result.Run) {
	for round := range rounds {
		for half, path := range []string{"nat", "host", "host", "proxy"} {
			x := run(path, round+1, half%3, 0)
			x.Metrics = map[result.Metric]float64{m: of(round+1, path)}
			runs = append(runs, x)
		}
	}
	return runs
}

// TestIntervalThatSaysNothing: two rounds that differ by orders of magnitude have a
// ratio and no interval.
func TestIntervalThatSaysNothing(t *testing.T) {
	runs := figures(result.Throughput, 2, func(round int, path string) float64 {
		if path == "nat" && round == 2 {
			return 1e-3
		}
		return 1
	})
	for _, s := range Summarize(runs, "host", 1) {
		switch {
		case s.Path != "nat" && (!s.HasInterval() || s.Lacks != ""),
			s.Path == "nat" && (s.HasInterval() || s.RatioHigh != 0 || s.Distinguishable || s.Ratio == 0 ||
				s.Lacks != "the 2 rounds differ too much for an interval: measure more rounds"):
			t.Errorf("%+v", s)
		}
	}
}

// TestIdleBelowTheClock: idle shares that the clock does not resolve have no ratio; the
// value is given.
func TestIdleBelowTheClock(t *testing.T) {
	for name, s := range map[string]struct {
		host, nat float64
		lacking   []string
	}{
		"both busy":       {0.004, 0.002, []string{"host", "nat", "proxy"}},
		"one path busy":   {0.45, 0.003, []string{"nat"}},
		"neither is busy": {0.45, 0.30, nil},
	} {
		runs := figures(result.IdleShare, 6, func(_ int, path string) float64 {
			return map[string]float64{"host": s.host, "nat": s.nat, "proxy": 0.2}[path]
		})
		for _, row := range Summarize(runs, "host", 1) {
			want := slices.Contains(s.lacking, row.Path)
			if got := row.Lacks != ""; got != want || (row.Ratio == 0) != want || row.Value == 0 || row.Rounds != 6 {
				t.Errorf("%s: %+v", name, row)
			}
		}
		if changes := Changes(runs, runs, "host", 1); len(changes) != 2-min(2, len(s.lacking)) {
			t.Errorf("%s: %d ratios are compared between sessions", name, len(changes))
		}
	}
}
