package serving

import (
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
)

// garbage keeps the compiler from placing allocations on the stack.
var garbage []byte

// collections returns how many collections the garbage of many requests causes.
func collections() uint32 {
	const allocated, block = 256 << 20, 16 << 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range allocated / block {
		garbage = make([]byte, block)
	}
	runtime.ReadMemStats(&after)
	return after.NumGC - before.NumGC
}

// usual is the number of collections without collectRarely, which stays in effect after a test.
var usual = sync.OnceValue(func() uint32 {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	return collections()
})

// TestFewCollections allocates as many requests do.
func TestFewCollections(t *testing.T) {
	t.Setenv("GOGC", "")
	usual()
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	collectRarely()
	if rare := collections(); rare > usual()/2 {
		t.Errorf("%d collections instead of %d", rare, usual())
	}
}

func TestPercentOfLiveHeap(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{
		{0, 400}, {1 << 20, 400}, {4 << 20, 400}, {8 << 20, 200}, {10 << 20, 175}, {16 << 20, 100}, {1 << 30, 100},
		{math.MaxUint64, 100},
	} {
		if got := percentFor(c.live); got != c.want {
			t.Errorf("%d bytes are live: %d %%, want %d", c.live, got, c.want)
		}
	}
}
