// Package maglev builds weighted Maglev tables. A table maps the buckets of a hash
// to backends.
//
// Theory of operation (Eisenbud et al., "Maglev: A Fast and Reliable Software
// Network Load Balancer", NSDI 2016, section 3.4). Every backend has a permutation
// of all buckets, which depends only on its name. The backends take turns, and each
// takes the first bucket of its permutation that is still free. In each round every
// backend adds its weight to a credit. It takes one bucket each time the credit
// reaches the greatest weight of all backends, which is then subtracted. So each
// backend's share of the buckets is exact to within one bucket. If a backend is
// removed, nearly all buckets of the others keep their owner.
//
// A table depends only on the names and weights, not on their order. So all hosts
// that have the same set of backends build the same table.
package maglev

import (
	"hash/fnv"
	"slices"
)

// Backend is an owner of buckets.
type Backend struct {
	// Name is unique, e.g. the address and port. The permutation is derived from it.
	Name string
	// Weight is the relative share of the buckets. A backend of weight 0 gets none.
	Weight uint32
}

// sizes are primes, each about twice the one before.
var sizes = []int{1021, 2039, 4093, 8191, 16381, 32749, 65521, 131071, 262139, 524287, 1048573, 2097143}

// Size returns the number of buckets of a table for the given number of backends: at
// least 500 per backend, up to 2,097,143 buckets. Then fewer than 1 % of the other
// backends' buckets change their owner if a backend is added or removed. The 100
// buckets per backend of the paper (section 5.3) do not achieve that.
func Size(backends int) int {
	for _, m := range sizes {
		if m >= 500*backends {
			return m
		}
	}
	return sizes[len(sizes)-1]
}

// Table returns a table with the given number of buckets, which must be prime. Each
// element is the index in all of the bucket's owner. Table returns nil if no backend
// has a weight.
func Table(all []Backend, size int) []uint16 {
	turns := take(all, size)
	if len(turns) == 0 {
		return nil
	}
	table := make([]uint16, size)
	taken := make([]bool, size)
	var most uint64
	for _, t := range turns {
		most = max(most, t.weight)
	}
	for left := size; ; {
		for i := range turns {
			t := &turns[i]
			for t.gathered += t.weight; t.gathered >= most; t.gathered -= most {
				for taken[t.next] {
					t.next = (t.next + t.skip) % size
				}
				taken[t.next] = true
				table[t.next] = t.index
				if left--; left == 0 {
					return table
				}
			}
		}
	}
}

// turn is the state of a backend while the table is filled.
type turn struct {
	name             string
	index            uint16
	weight, gathered uint64
	// next is the next bucket of its permutation, and skip the distance from each
	// bucket of the permutation to the one after it.
	next, skip int
}

// take returns the backends that have a weight, in the order in which they take
// buckets.
func take(all []Backend, size int) []turn {
	turns := make([]turn, 0, len(all))
	for i, b := range all {
		if b.Weight == 0 {
			continue
		}
		h := fnv.New64a()
		_, _ = h.Write([]byte(b.Name)) // it never fails
		sum := mix(h.Sum64())
		turns = append(turns, turn{name: b.Name, index: uint16(i), weight: uint64(b.Weight),
			next: int(uint32(sum)) % size, skip: int(sum>>32)%(size-1) + 1})
	}
	slices.SortFunc(turns, func(a, b turn) int {
		switch {
		case a.name < b.name:
			return -1
		case a.name > b.name:
			return 1
		}
		return 0
	})
	return turns
}

// mix makes hashes differ in all bits. FNV hashes of names that differ only in the
// last byte are close together. It is the finalizer of MurmurHash3 (Austin Appleby,
// public domain).
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
