package stats

import (
	"cmp"
	"math"
	"slices"

	moremath "github.com/aclements/go-moremath/stats"
)

// exactUpTo is the number of differences up to which the signed-rank distribution is
// computed exactly. Above it the normal approximation differs in the fourth digit.
const exactUpTo = 25

// signedRank returns the two-sided p-value of Wilcoxon's signed-rank test that the
// differences are distributed around zero. Zeros are omitted, and ties get their mean
// rank. The distribution is computed from these ranks, so ties need no approximation.
func signedRank(diffs []float64) float64 {
	ranks, positive := doubledRanks(diffs)
	if len(ranks) == 0 {
		return 1
	}
	if len(ranks) > exactUpTo {
		return normalP(ranks, positive)
	}
	return exactP(ranks, positive)
}

// doubledRanks ranks the absolute differences. It returns twice each rank (a mean
// rank is a multiple of one half), and the sum of those with a positive difference.
func doubledRanks(diffs []float64) (ranks []int, positive int) {
	s := slices.DeleteFunc(slices.Clone(diffs), func(d float64) bool { return d == 0 })
	slices.SortFunc(s, func(a, b float64) int { return cmp.Compare(math.Abs(a), math.Abs(b)) })
	for i := 0; i < len(s); {
		j := i + 1
		for j < len(s) && math.Abs(s[j]) == math.Abs(s[i]) {
			j++
		}
		for _, d := range s[i:j] {
			ranks = append(ranks, i+1+j)
			if d > 0 {
				positive += i + 1 + j
			}
		}
		i = j
	}
	return ranks, positive
}

// exactP counts the sign assignments whose rank sum is at least as far from the
// middle. counts[w] is the number of assignments with rank sum w.
func exactP(ranks []int, positive int) float64 {
	total := 0
	for _, r := range ranks {
		total += r
	}
	counts := make([]float64, total+1)
	counts[0] = 1
	for _, r := range ranks {
		for w := total; w >= r; w-- {
			counts[w] += counts[w-r]
		}
	}
	tail := 0.0
	for _, n := range counts[:min(positive, total-positive)+1] {
		tail += n
	}
	return min(1, math.Ldexp(2*tail, -len(ranks)))
}

// normalP is the normal approximation with continuity correction. The variance is
// computed from the ranks, including ties.
func normalP(ranks []int, positive int) float64 {
	var total, squares float64
	for _, r := range ranks {
		total += float64(r)
		squares += float64(r) * float64(r)
	}
	off := max(0, math.Abs(float64(positive)-total/2)-1)
	return min(1, 2*moremath.StdNormal.CDF(-off/math.Sqrt(squares/4)))
}

// adjusted returns the p-values of one family, adjusted with Holm's method. Each is
// for the hypothesis that a series of differences is distributed around zero.
//
// The signed-rank test has no p-value below 2/2^n over n rounds, and Holm's method
// multiplies the smallest of k p-values by k, so with few rounds no path could be
// distinguished. Student's test has no such limit, but assumes that the noise is
// normal. So the p-value is Student's if the signed-rank test cannot reach Alpha, and
// the greater of the two if it can.
func adjusted(family [][]float64) []float64 {
	ps := make([]float64, len(family))
	for i, diffs := range family {
		ps[i] = studentP(diffs)
		if float64(len(family))*math.Ldexp(2, -len(diffs)) < Alpha {
			ps[i] = max(ps[i], signedRank(diffs))
		}
	}
	return holm(ps)
}

// studentP returns the two-sided p-value of Student's test that the mean of the
// differences is zero; 1 for fewer than two.
func studentP(diffs []float64) float64 {
	if len(diffs) < 2 {
		return 1
	}
	m, se := meanError(diffs)
	switch {
	case m == 0:
		return 1
	case se == 0:
		return 0
	}
	return 2 * moremath.TDist{V: float64(len(diffs) - 1)}.CDF(-math.Abs(m)/se)
}

// holm adjusts the p-values of one family for their number with Holm's step-down
// method, and keeps their order.
func holm(ps []float64) []float64 {
	order := make([]int, len(ps))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(ps[a], ps[b]) })
	out := make([]float64, len(ps))
	least := 0.0
	for i, at := range order {
		least = max(least, min(1, ps[at]*float64(len(ps)-i)))
		out[at] = least
	}
	return out
}
