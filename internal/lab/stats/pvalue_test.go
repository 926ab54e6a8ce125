package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestSignedRankTable compares the distribution with the published critical values of
// the signed-rank statistic at the two-sided 5 % level: the test rejects at the
// critical sum, and does not reject at the next greater sum.
func TestSignedRankTable(t *testing.T) {
	critical := map[int]int{6: 0, 7: 2, 8: 3, 9: 5, 10: 8, 11: 10, 12: 13, 13: 17, 14: 21, 15: 25, 16: 29, 20: 52,
		25: 89}
	for n, w := range critical {
		ranks := make([]int, n)
		for i := range ranks {
			ranks[i] = 2 * (i + 1)
		}
		at, above := exactP(ranks, 2*w), exactP(ranks, 2*(w+1))
		if at > 0.05 || above <= 0.05 {
			t.Errorf("n = %d: p(W = %d) = %.4f, p(W = %d) = %.4f", n, w, at, w+1, above)
		}
	}
}

func TestSignedRankLeastP(t *testing.T) {
	for n, want := range map[int]float64{1: 1, 4: 0.125, 5: 0.0625, 6: 0.03125, 12: 1.0 / 2048} {
		diffs := make([]float64, n)
		for i := range diffs {
			diffs[i] = float64(i + 1)
		}
		if p := signedRank(diffs); p != want {
			t.Errorf("n = %d, all positive: p = %g, want %g", n, p, want)
		}
	}
	if p := signedRank([]float64{0, 0}); p != 1 {
		t.Errorf("without differences: p = %g", p)
	}
}

// TestSignedRankBruteForce compares with the enumeration of all signs, including ties
// and zeros.
func TestSignedRankBruteForce(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 200 {
		diffs := make([]float64, 1+rng.IntN(10))
		for i := range diffs {
			diffs[i] = float64(rng.IntN(9)-4) / 2
		}
		if got, want := signedRank(diffs), bruteForce(diffs); math.Abs(got-want) > 1e-12 {
			t.Fatalf("%v: p = %g, want %g from brute force", diffs, got, want)
		}
	}
}

func bruteForce(diffs []float64) float64 {
	ranks, positive := doubledRanks(diffs)
	total := 0
	for _, r := range ranks {
		total += r
	}
	away := func(w int) int { return max(2*w-total, total-2*w) }
	hits := 0
	for signs := range 1 << len(ranks) {
		w := 0
		for i, r := range ranks {
			if signs>>i&1 == 1 {
				w += r
			}
		}
		if away(w) >= away(positive) {
			hits++
		}
	}
	return float64(hits) / float64(int(1)<<len(ranks))
}

func TestNormalApproximationAgreesWithExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	diffs := make([]float64, exactUpTo)
	for i := range diffs {
		diffs[i] = rng.NormFloat64() + 0.4
	}
	ranks, positive := doubledRanks(diffs)
	if e, n := exactP(ranks, positive), normalP(ranks, positive); math.Abs(e-n) > 0.003 {
		t.Errorf("exact %.5f, normal %.5f", e, n)
	}
	if p := signedRank(append(diffs, diffs...)); p >= signedRank(diffs) {
		t.Errorf("twice the evidence gives p = %g", p)
	}
}

func TestHolm(t *testing.T) {
	got := holm([]float64{0.04, 0.01, 0.03, 0.005})
	want := []float64{0.06, 0.03, 0.06, 0.02}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-12 {
			t.Fatalf("holm = %v, want %v", got, want)
		}
	}
	if got := holm([]float64{0.9, 0.8}); got[0] != 1 || got[1] != 1 {
		t.Errorf("got %v, want p-values of at most 1", got)
	}
}
