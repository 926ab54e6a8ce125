package tree

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// allocated returns how many bytes do allocates, also those that are free again.
func allocated(do func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// TestKeysAreLinear compares keys of one and of two times the length.
func TestKeysAreLinear(t *testing.T) {
	tree := func(n int) int {
		var pairs []Pair
		for i := range n {
			pairs = append(pairs, Pair{fmt.Sprintf("a.b%d"+strings.Repeat(".name", maxDepth-2), i), "x"})
		}
		return allocated(func() { FromPairs(pairs) })
	}
	if one, two := tree(500), tree(1000); two > 3*one {
		t.Errorf("500 keys take %d bytes, 1000 %d", one, two)
	}
}
