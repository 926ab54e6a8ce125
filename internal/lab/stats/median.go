package stats

import (
	"math"
	"slices"
)

// Median returns the median of xs; 0 if xs is empty.
func Median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(xs))
	mid := len(s) / 2
	if len(s)%2 == 1 {
		return s[mid]
	}
	return (s[mid-1] + s[mid]) / 2
}

// MedianInterval returns the median of xs with an interval between two order
// statistics. The interval covers the true median with at least 95 %, whatever the
// distribution, if there are six observations or more. With fewer, it is the range
// from the least to the greatest and covers less (five: 93.75 %).
func MedianInterval(xs []float64) (median, low, high float64) {
	n := len(xs)
	if n == 0 {
		return 0, 0, 0
	}
	s := slices.Sorted(slices.Values(xs))
	k := orderRank(n)
	return Median(s), s[k], s[n-1-k]
}

// orderRank returns the greatest k such that the median of the distribution is
// between the k-th smallest and the k-th greatest of n values (counted from 0) with at
// least 95 %; 0 if there is none. The median is below the k-th smallest value if at
// most k of n fair coins show the same side.
func orderRank(n int) int {
	k, below := 0, 0.0
	for i := range n / 2 {
		below += math.Exp(logChoose(n, i) - float64(n)*math.Ln2)
		if 2*below > Alpha {
			break
		}
		k = i
	}
	return k
}

func logChoose(n, k int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}
