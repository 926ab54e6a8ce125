package serving

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// heap returns how many bytes were live after the last collection, how many may be allocated until the next one, and
// the percentage in effect.
func heap() (live, left uint64, percent int) {
	all := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/goal:bytes"}, {Name: "/gc/gogc:percent"}}
	metrics.Read(all)
	live = all[0].Value.Uint64()
	return live, all[1].Value.Uint64() - live, int(all[2].Value.Uint64())
}

// TestFewCollections checks how much requests may allocate between two collections: with a small heap, and after the
// heap has grown. The number of collections depends on how fast the machine is: memory is allocated during each.
func TestFewCollections(t *testing.T) {
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	runtime.GC()
	collectRarely()
	const least = room * 3 / 4 // the goal of a small heap is room, and its live bytes are a part of that
	if live, left, percent := heap(); left < least {
		t.Errorf("%d bytes may be allocated after %d live ones, want %d (%d %%)", left, live, least, percent)
	}
	grown := make([]byte, room*5/8)
	for end := time.Now().Add(time.Minute); ; runtime.Gosched() {
		runtime.GC() // the collector's finalizer runs afterwards
		live, left, percent := heap()
		if percent == percentFor(live) && percent < mostPercent && left >= room {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d bytes may be allocated after %d live ones at %d %%, want %d %%", left, live, percent, percentFor(live))
		}
	}
	runtime.KeepAlive(grown)
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
