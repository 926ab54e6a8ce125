package wrr_test

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"slices"
	"testing"

	"fairlead/internal/balance/wrr"
)

// TestRingsStayEqual compares rings with those that the data planes ebpf (at most 16384
// turns) and nft (at most 4096) had before they shared this package. A ring in the
// kernel that an earlier daemon has written must stay as it is.
func TestRingsStayEqual(t *testing.T) {
	var ones, mixed []int
	for i := range 300 {
		ones, mixed = append(ones, 1), append(mixed, 17*i%101)
	}
	for _, s := range []struct {
		weights []int
		most    int
		turns   int
		sum     uint64
		first   []uint16
	}{
		{[]int{5, 1, 1}, 16384, 7, 0xe12b37226ac07004, []uint16{0, 0, 1, 0, 2, 0, 0}},
		{[]int{2, 13, 111, 10}, 16384, 136, 0x2614d7d733df806c, []uint16{2, 2, 2, 1, 2, 2, 2, 3, 2}},
		{[]int{0, 3, 0, 1}, 16384, 4, 0xd627efd244ddd6ff, []uint16{1, 1, 3, 1}},
		{[]int{100, 100}, 16384, 2, 0x4d25757f9dce1242, []uint16{0, 1}},
		{[]int{65535, 1}, 16384, 16384, 0x1e0385488cba8daa, []uint16{0, 0}},
		{[]int{65535, 1}, 4096, 4096, 0x4cbac4a56a4f4daa, []uint16{0, 0}},
		{[]int{65535, 65534, 7, 0, 12345}, 16384, 16383, 0x923a9b4783b34337, []uint16{0, 1, 0, 1, 4, 0, 1, 0, 1}},
		{[]int{65535, 65534, 7, 0, 12345}, 4096, 4095, 0xcb78c77271ae214c, []uint16{0, 1, 0, 1, 4, 0, 1, 0, 1}},
		{ones, 4096, 300, 0x2ac4f17203629f19, []uint16{0, 1, 2, 3}},
		{mixed, 16384, 14949, 0x630cdf2aba4eb9f4, []uint16{95, 196, 297, 89}},
		{mixed, 4096, 3960, 0xa9a99ac8c12a4edf, []uint16{89, 95, 190, 196}},
		{[]int{0, 0}, 16384, 0, 0xcbf29ce484222325, nil},
		{nil, 16384, 0, 0xcbf29ce484222325, nil},
	} {
		ring := wrr.Ring(s.weights, s.most)
		h := fnv.New64a()
		for _, index := range ring {
			_ = binary.Write(h, binary.BigEndian, index) // writing to a hash never fails
		}
		first := ring[:min(len(ring), len(s.first))]
		if len(ring) != s.turns || h.Sum64() != s.sum || !slices.Equal(first, s.first) {
			t.Errorf("%v, at most %d: %v and so on, %d turns with the sum %#x, want %v, %d and %#x",
				s.weights[:min(len(s.weights), 5)], s.most, first, len(ring), h.Sum64(), s.first, s.turns, s.sum)
		}
	}
}

// TestHostileWeights makes rings of weights whose sums and products exceed an int, and of negative ones.
func TestHostileWeights(t *testing.T) {
	const huge = math.MaxInt
	for _, weights := range [][]int{{huge, 1}, {huge, huge - 1}, {huge, huge - 1, huge - 2, 7}, {1 << 61, 3}, {-1, 3},
		{-5, -7, 2}, {math.MinInt, huge, 1}, {-1}} {
		ring := wrr.Ring(weights, 4096)
		if len(ring) > 4096+len(weights) {
			t.Errorf("%v: %d turns", weights, len(ring))
		}
		for i, w := range weights {
			if slices.Contains(ring, uint16(i)) != (w > 0) {
				t.Errorf("%v: index %d has a turn although its weight is not above 0, or has none", weights, i)
			}
		}
	}
}

// TestRingIsEven checks that each index has as many turns as its weight, also in the
// first half of the ring.
func TestRingIsEven(t *testing.T) {
	weights := []int{2, 13, 111, 10}
	ring := wrr.Ring(weights, 1000)
	turns := func(of []uint16, index int) (n int) {
		for _, i := range of {
			if int(i) == index {
				n++
			}
		}
		return n
	}
	for i, w := range weights {
		if got := turns(ring, i); got != w {
			t.Errorf("index %d has %d turns, want %d", i, got, w)
		}
		if got := 2 * turns(ring[:len(ring)/2], i); got < w-2 || got > w+2 {
			t.Errorf("index %d of weight %d has %d half turns in the first half", i, w, got)
		}
	}
}
