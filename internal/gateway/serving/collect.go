package serving

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// room is how many bytes the process may allocate between two garbage collections while its live heap is
// small. By default Go collects a small heap after each 4 MB. A gateway fills these several times per
// second, and requests wait during each collection.
const room = 16 << 20

// The limits of the percentage of the live heap that may be allocated between two collections.
const (
	leastPercent = 100 // Go's default
	mostPercent  = 400
)

// collectRarely makes the garbage collector leave room. It changes nothing if the environment sets GOGC.
func collectRarely() {
	if os.Getenv("GOGC") != "" {
		return
	}
	c := &collector{live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	c.adjust()
}

// collector adjusts the percentage after each collection.
type collector struct {
	live    []metrics.Sample
	percent int
}

// adjust is the collector's finalizer, so it runs again after the next collection.
func (c *collector) adjust() {
	metrics.Read(c.live)
	if p := percentFor(c.live[0].Value.Uint64()); p != c.percent {
		c.percent = p
		debug.SetGCPercent(p) // stops all goroutines for a moment
	}
	runtime.SetFinalizer(c, (*collector).adjust)
}

// percentFor returns the percentage that leaves room, rounded up so that it changes rarely.
func percentFor(live uint64) int {
	const step = 25
	percent := room * 100 / max(live, 1)
	return int(min(max((percent+step-1)/step*step, leastPercent), mostPercent))
}
