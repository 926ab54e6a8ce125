package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"fairlead/internal/lab/result"
)

// noises are the distributions of a run's scatter, on the logarithmic scale.
var noises = map[string]func(*rand.Rand) float64{
	"normal":     func(r *rand.Rand) float64 { return 0.03 * r.NormFloat64() },
	"skewed":     func(r *rand.Rand) float64 { return 0.03 * r.ExpFloat64() },
	"heavy tail": func(r *rand.Rand) float64 { return 0.03 * math.Exp(r.NormFloat64()) },
	"two states": func(r *rand.Rand) float64 { return 0.05*float64(r.IntN(2)) + 0.01*r.NormFloat64() },
	"spikes": func(r *rand.Rand) float64 {
		x := 0.02 * r.NormFloat64()
		if r.IntN(10) == 0 {
			x -= 0.3 * r.Float64()
		}
		return x
	},
}

// trends are the effects of a run's position in its round, which is from 0 to 1.
var trends = map[string]func(at float64) float64{
	"no trend":    func(float64) float64 { return 0 },
	"first slow":  func(at float64) float64 { return map[bool]float64{true: -0.3}[at == 0] },
	"first a bit": func(at float64) float64 { return map[bool]float64{true: -0.05}[at == 0] },
	"last slow":   func(at float64) float64 { return map[bool]float64{true: -0.1}[at == 1] },
	"settling":    func(at float64) float64 { return 0.1 * math.Exp(-4*at) },
}

// twins returns a session of paths that differ only in noise and trend.
func twins(rounds int, paths []string, seed uint64, noise func(*rand.Rand) float64,
	trend func(float64) float64) []result.Run {
	rng := rand.New(rand.NewPCG(seed, 5))
	var runs []result.Run
	for i, turns := range Schedule("host", paths, rounds, seed) {
		for _, turn := range turns {
			x := noise(rng) + trend(float64(turn.Order)/float64(len(turns)-1))
			r := run(turn.Path, i+1, turn.Half, 10e9*math.Exp(x))
			r.Metrics[result.CPUPerGB] = math.Exp(-x)
			runs = append(runs, r)
		}
	}
	return runs
}

// TestFewRoundsUnderAnyNoise: identical paths are reported as different in at most
// one session of twenty, and the intervals contain the true value in 93 % of the
// cases.
func TestFewRoundsUnderAnyNoise(t *testing.T) {
	const sessions = 300
	for noise, scatter := range noises {
		for trend, place := range trends {
			for _, paths := range [][]string{{"a"}, {"a", "b", "c", "d"}} {
				for _, rounds := range []int{6, 7} {
					wrong, covered, n := 0, 0, 0
					for seed := range uint64(sessions) {
						distinguished := false
						for _, row := range Summarize(twins(rounds, paths, seed, scatter, place), "host", 1) {
							if row.Path == "host" || row.Metric != result.Throughput {
								continue
							}
							n++
							distinguished = distinguished || row.Distinguishable
							if row.RatioLow <= 1 && row.RatioHigh >= 1 {
								covered++
							}
						}
						if distinguished {
							wrong++
						}
					}
					name := fmt.Sprintf("%s, %s, %d paths, %d rounds", noise, trend, len(paths), rounds)
					if share := float64(wrong) / sessions; share > 0.05 {
						t.Errorf("%s: a false verdict in %.3f of the sessions", name, share)
					}
					if share := float64(covered) / float64(n); share < 0.93 {
						t.Errorf("%s: the interval contained the true value in %.3f of the cases", name, share)
					}
				}
			}
		}
	}
}

// TestStepsThatAddNothing: between identical paths, no step is distinguishable in
// 95 % of the sessions.
func TestStepsThatAddNothing(t *testing.T) {
	const sessions = 120
	ladder := []result.Step{{Path: "host"}}
	var paths []string
	for _, path := range []string{"a", "b", "c", "d", "e", "f"} {
		ladder = append(ladder, result.Step{Name: path, Path: path, Over: ladder[len(ladder)-1].Path})
		paths = append(paths, path)
	}
	for noise, scatter := range noises {
		for _, rounds := range []int{6, 7} {
			wrong := 0
			for seed := range uint64(sessions) {
				distinguished := false
				for _, s := range Steps(twins(rounds, paths, seed, scatter, trends["first a bit"]), "host", ladder, 1) {
					distinguished = distinguished || s.Figures[0].Distinguishable
				}
				if distinguished {
					wrong++
				}
			}
			if share := float64(wrong) / sessions; share > 0.05 {
				t.Errorf("%s, %d rounds: a step between identical paths in %.3f of the sessions", noise, rounds, share)
			}
		}
	}
}
