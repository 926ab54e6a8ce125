package services

import (
	"time"

	"fairlead/internal/daemon/pool"
	"fairlead/internal/daemon/state"
	"fairlead/internal/daemon/stats"
)

// countAgain is the maximum age of the counters that are returned.
const countAgain = 100 * time.Millisecond

// flowCounts are the counters of the data planes.
type flowCounts struct {
	state *state.State
	// count reads them; it may be nil.
	count  stats.CountReals
	counts stats.RealCounts
	// readAt is when they were read; zero if they must be read again.
	readAt time.Time
}

// read reads the counters of real servers, unless they are recent.
func (f *flowCounts) read() {
	if f.count == nil || len(f.state.Applied().Services) == 0 || time.Since(f.readAt) < countAgain {
		return
	}
	counts, err := f.count(f.state.Applied().Services)
	f.state.Warn("count the flows of real servers", err)
	if err == nil {
		f.counts, f.readAt = counts, time.Now()
	}
}

// live returns the last known number of open flows of a real server, or nil if its
// data plane does not count them.
func (f *flowCounts) live(key pool.Key) *uint64 {
	c, counted := f.counts[key.Service][key.At]
	if !counted {
		return nil
	}
	return &c.Live
}
