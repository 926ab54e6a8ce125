package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"fairlead/internal/lab/result"
)

// repeated returns the runs of several sessions of a baseline and paths with the ratio 1.
// Each path has an effect in each session, in addition to the noise of each run.
func repeated(sessions, rounds int, paths []string, seed uint64, effect func(*rand.Rand) float64) []result.Run {
	rng := rand.New(rand.NewPCG(seed, 9))
	var runs []result.Run
	for session := range sessions {
		effects := map[string]float64{}
		for _, p := range paths {
			effects[p] = effect(rng)
		}
		for i, turns := range Schedule("host", paths, rounds, seed+uint64(session)) {
			for _, turn := range turns {
				r := run(turn.Path, i+1, turn.Half, 10e9*math.Exp(effects[turn.Path]+0.01*rng.NormFloat64()))
				r.Session = session + 1
				runs = append(runs, r)
			}
		}
	}
	return runs
}

// effects are distributions of what a session adds to a path, on the logarithmic scale.
// Each has the mean 0.
var effects = map[string]func(*rand.Rand) float64{
	"none":       func(*rand.Rand) float64 { return 0 },
	"normal":     func(r *rand.Rand) float64 { return 0.04 * r.NormFloat64() },
	"uniform":    func(r *rand.Rand) float64 { return 0.1 * (r.Float64() - 0.5) },
	"two states": func(r *rand.Rand) float64 { return 0.08*float64(r.IntN(2)) - 0.04 + 0.01*r.NormFloat64() },
}

// TestSessionIntervals: the interval with the session component contains the true ratio in
// 95 % of the reports, and one report in twenty has a false verdict. The interval within the
// sessions is too narrow as soon as sessions differ.
func TestSessionIntervals(t *testing.T) {
	const reports = 250
	for name, effect := range effects {
		for _, sessions := range []int{2, 3, 6, 10} {
			if name == "two states" && sessions < 6 {
				continue // all sessions may be in the same state, which no interval can contain
			}
			t.Run(fmt.Sprintf("%s, %d sessions", name, sessions), func(t *testing.T) {
				t.Parallel()
				with, within, wrong := 0, 0, 0
				for seed := range uint64(reports) {
					row := find(t, Summarize(repeated(sessions, 3, []string{"a"}, seed, effect), "host", 1), "a")
					with += count(row.SessionLow <= 1 && row.SessionHigh >= 1)
					within += count(row.RatioLow <= 1 && row.RatioHigh >= 1)
					wrong += count(row.Distinguishable)
					if row.Sessions != sessions || row.Rounds != 3*sessions {
						t.Fatalf("row %+v", row)
					}
				}
				share := func(n int) float64 { return float64(n) / reports }
				// Three standard deviations of a binomial at 0.95 over 250 are 4.1 %.
				if share(with) < 0.909 {
					t.Errorf("the interval with the session component contains the true ratio in %.3f", share(with))
				}
				if share(wrong) > 0.091 {
					t.Errorf("a false verdict in %.3f", share(wrong))
				}
				if name != "none" && share(within) > 0.7 {
					t.Errorf("the interval within the sessions contains the true ratio in %.3f: the sessions do not differ",
						share(within))
				}
			})
		}
	}
}

// TestSessionsAreCompared: between two reports of the same path, the interval with the
// session component excludes 1 in one comparison of twenty, and finds a real change.
func TestSessionsAreCompared(t *testing.T) {
	const comparisons = 250
	for name, effect := range effects {
		for _, sessions := range []int{2, 3, 6} {
			t.Run(fmt.Sprintf("%s, %d sessions", name, sessions), func(t *testing.T) {
				t.Parallel()
				excluded, wrong := 0, 0
				for seed := range uint64(comparisons) {
					before := repeated(sessions, 3, []string{"a"}, 2*seed, effect)
					after := repeated(sessions, 3, []string{"a"}, 2*seed+1, effect)
					c := Changes(before, after, "host", 1)[0]
					excluded += count(c.SessionLow > 1 || c.SessionHigh < 1)
					wrong += count(c.Distinguishable())
				}
				if share := float64(excluded) / comparisons; share > 0.091 {
					t.Errorf("the interval with the session component excludes 1 in %.3f of the A/A comparisons", share)
				}
				if share := float64(wrong) / comparisons; share > 0.091 {
					t.Errorf("a false verdict in %.3f of the A/A comparisons", share)
				}
			})
		}
	}
	before := repeated(5, 3, []string{"a"}, 1, effects["normal"])
	after := repeated(5, 3, []string{"a"}, 2, func(r *rand.Rand) float64 { return 0.3 + 0.04*r.NormFloat64() })
	if c := Changes(before, after, "host", 1)[0]; !c.Distinguishable() || c.SessionLow < 1.1 {
		t.Errorf("a change of 35 %%: %+v", c)
	}
}

// TestOneSessionHasNoSessionInterval: neither in a report of one session, nor for a path
// whose runs are valid in one of two sessions.
func TestOneSessionHasNoSessionInterval(t *testing.T) {
	runs := repeated(2, 5, []string{"a"}, 1, func(*rand.Rand) float64 { return 0.5 })
	for i, r := range runs {
		if r.Path == "a" && r.Session == 2 {
			runs[i].Invalid = []string{"steal"}
		}
	}
	row := find(t, Summarize(runs, "host", 1), "a")
	if row.Sessions != 1 || row.SessionLow != 0 || row.Distinguishable || row.Rounds != 5 {
		t.Errorf("valid in one of two sessions: %+v", row)
	}
	one := find(t, Summarize(repeated(1, 5, []string{"a"}, 1, effects["none"]), "host", 1), "a")
	if one.Sessions != 0 || one.SessionHigh != 0 {
		t.Errorf("one session: %+v", one)
	}
}

// TestStepsOfSessions: steps have both intervals.
func TestStepsOfSessions(t *testing.T) {
	runs := repeated(4, 3, []string{"a"}, 1, effects["normal"])
	ladder := []result.Step{{Path: "host"}, {Name: "a", Path: "a", Over: "host"}}
	for i := range runs {
		runs[i].Metrics[result.CPUPerGB] = 1e10 / runs[i].Metrics[result.Throughput]
	}
	f := Steps(runs, "host", ladder, 1)[1].Figures[0]
	if f.Sessions != 4 || f.SessionHigh-f.SessionLow < f.High-f.Low || f.Distinguishable {
		t.Errorf("%+v", f)
	}
}

func count(holds bool) int {
	if holds {
		return 1
	}
	return 0
}
