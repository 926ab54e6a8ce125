// Package wrr builds the order of turns of weighted round robin.
//
// Theory of operation (the smooth weighted round robin of nginx). At each turn, every
// index gathers its weight. The index that has gathered most gets the turn, and the sum
// of all weights is subtracted from it. So each index has as many turns as its weight,
// spread as evenly as possible. After as many turns as the sum of the weights, the order
// repeats.
package wrr

import "math/bits"

// Ring returns one cycle of the turns: the indexes of the weights in their order. An
// index of weight 0 gets no turn. The cycle is shortened without loss if the weights
// have a common divisor. If it still has more turns than most, the weights are scaled
// down to about that sum, and every index keeps at least one turn.
func Ring(weights []int, most int) []uint16 {
	shares := reduce(weights, most)
	sum := 0
	for _, s := range shares {
		sum += s
	}
	ring, gathered := make([]uint16, sum), make([]int, len(shares))
	for turn := range ring {
		best := -1
		for i, s := range shares {
			if gathered[i] += s; s > 0 && (best < 0 || gathered[i] > gathered[best]) {
				best = i
			}
		}
		gathered[best] -= sum
		ring[turn] = uint16(best)
	}
	return ring
}

// reduce divides the weights by their greatest common divisor. If their sum is then
// still above most, it scales them down to about most.
func reduce(weights []int, most int) []int {
	weights = bounded(weights)
	common, sum := 0, 0
	for _, w := range weights {
		common, sum = gcd(common, w), sum+w
	}
	if common == 0 {
		return weights
	}
	reduced := make([]int, len(weights))
	for i, w := range weights {
		reduced[i] = w / common
		if sum/common > most && w > 0 {
			reduced[i] = max(1, w*most/sum)
		}
	}
	return reduced
}

// bounded returns weights whose sums and products fit into an int: negative ones are 0, and if one has more than 31
// bits,
// all are divided by the same power of two. Every index with a weight keeps at least 1.
func bounded(weights []int) []int {
	largest := 0
	for _, w := range weights {
		largest = max(largest, w)
	}
	shift := max(0, bits.Len(uint(largest))-31)
	all := make([]int, len(weights))
	for i, w := range weights {
		if w > 0 {
			all[i] = max(1, w>>shift)
		}
	}
	return all
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
