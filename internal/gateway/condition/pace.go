package condition

import (
	"sync/atomic"
	"time"
)

// Pace is the moving average of the time until a server's responses begin. Its methods may be called concurrently.
type Pace struct {
	// average and last are in nanoseconds; last is the time of the last response.
	average, last atomic.Int64
}

// forget is the time in which the average of a server without requests halves, so that a
// slow server is tried again.
const forget = 10 * time.Second

// Add adds a response. Concurrent responses may lose one another's part of the average.
func (p *Pace) Add(took time.Duration, now time.Time) {
	average := p.average.Load()
	if average == 0 {
		average = int64(took)
	}
	p.average.Store(average + (int64(took)-average)/8)
	p.last.Store(now.UnixNano())
}

// At returns the average in nanoseconds. It shrinks while the server gets no requests.
func (p *Pace) At(now time.Time) int64 {
	idle := (now.UnixNano() - p.last.Load()) / int64(forget)
	return p.average.Load() >> min(max(idle, 0), 62)
}
