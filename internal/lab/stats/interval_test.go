package stats

import (
	"math"
	"testing"
)

// TestMedianIntervalRanks compares the ranks with the published table of
// order-statistic intervals for the median at 95 %.
func TestMedianIntervalRanks(t *testing.T) {
	// Number of values: the ranks of the interval's ends, counted from 1.
	table := map[int][2]int{6: {1, 6}, 8: {1, 8}, 9: {2, 8}, 12: {3, 10}, 15: {4, 12}, 17: {5, 13}, 20: {6, 15},
		25: {8, 18}, 40: {14, 27}}
	for n, want := range table {
		xs := make([]float64, n)
		for i := range xs {
			xs[i] = float64(n - i)
		}
		_, low, high := MedianInterval(xs)
		if int(low) != want[0] || int(high) != want[1] {
			t.Errorf("n = %d: [%g %g], want %v", n, low, high, want)
		}
	}
}

func TestMedianOfFew(t *testing.T) {
	if m, lo, hi := MedianInterval([]float64{3, 1, 2, 9}); m != 2.5 || lo != 1 || hi != 9 {
		t.Errorf("got %g [%g %g]", m, lo, hi)
	}
	if m, lo, hi := MedianInterval(nil); m != 0 || lo != 0 || hi != 0 {
		t.Errorf("of nothing: %g [%g %g]", m, lo, hi)
	}
}

func TestMedianRatio(t *testing.T) {
	a, b := []float64{9, 10, 11, 10, 10, 9.5}, []float64{19, 20, 21, 20, 20, 20.5}
	r, lo, hi := MedianRatio(a, b, 1)
	if r != 2 || lo < 1.8 || lo > 2 || hi < 2 || hi > 2.3 {
		t.Errorf("got %g [%g %g]", r, lo, hi)
	}
	if r, lo, hi := MedianRatio(a[:1], b, 1); lo != r || hi != r {
		t.Errorf("of one observation: %g [%g %g]", r, lo, hi)
	}
}

func TestFloorUsesFartherEnd(t *testing.T) {
	if got := Floor(1/1.02, 1.01); math.Abs(got-math.Expm1(math.Sqrt(0.75)*math.Log(1.02))) > 1e-12 {
		t.Errorf("got %g; want the floor of the farther end, 1.02", got)
	}
}

func TestStudentTable(t *testing.T) {
	for n, want := range map[int]float64{2: 12.706, 3: 4.303, 5: 2.776, 12: 2.201} {
		if got := student(n); math.Abs(got-want) > 0.001 {
			t.Errorf("%d observations: %.4f, want %.3f", n, got, want)
		}
	}
}
