// Package maglev builds weighted Maglev tables: which backend a bucket of a
// hash belongs to.
//
// Theory of operation (Eisenbud et al., "Maglev: A Fast and Reliable Software
// Network Load Balancer", NSDI 2016, section 3.4). Every backend has a
// permutation of all buckets, made of its name alone; the backends take turns,
// and each takes the first of its buckets that is free. The weight says how
// many turns a backend gets: at each turn a backend gathers its weight, and
// takes a bucket for each whole greatest weight that it has gathered. So a
// backend has its share of the buckets to within one of them, and where one
// goes, what others have stays theirs for nearly all.
//
// A table depends on nothing but names and weights, whatever their order:
// every host that has the same set builds the same.
package maglev

import (
	"hash/fnv"
	"slices"
)

// Backend is what shares the buckets.
type Backend struct {
	// Name is what its permutation is made of, e.g. its address and port.
	Name string
	// Weight is its share; none for 0.
	Weight uint32
}

// sizes are primes, each about twice the one before.
var sizes = []int{1021, 2039, 4093, 8191, 16381, 32749, 65521, 131071, 262139, 524287, 1048573, 2097143}

// Size returns the number of buckets of a table for so many backends: at least
// 500 for each, so that one backend more or less moves fewer than one in a
// hundred of the others' buckets, which the 100 of the paper (section 5.3) do
// not achieve.
func Size(backends int) int {
	for _, m := range sizes {
		if m >= 500*backends {
			return m
		}
	}
	return sizes[len(sizes)-1]
}

// Table returns, for each of size buckets, the index in all of its backend;
// nil if none has a weight. Size is a prime.
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

// turn is a backend that takes buckets.
type turn struct {
	name             string
	index            uint16
	weight, gathered uint64
	// next is the bucket that it looks at, and skip the way to the one after.
	next, skip int
}

// take returns the backends that have a weight, in the order of their turns.
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

// mix spreads what FNV leaves close together in names that differ in their
// last byte (the finalizer of MurmurHash3, by Austin Appleby, public domain).
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
