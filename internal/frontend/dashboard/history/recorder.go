// Package history keeps the figures of the last hour, from counters that their owners have already. It reads no counter
// itself, and draws no chart.
//
// Theory of operation. Run reads all counters every ten seconds, whether anyone looks at them or not, and a Recorder
// keeps 360 samples in memory. The memory is allocated once: 4 bytes for each figure of a sample and 8 for its time,
// which is 23,040 bytes for the 14 figures of a host. Nothing is computed for viewers until one asks.
//
// The time of a sample is that since the host was booted, with the time that it was suspended (CLOCK_BOOTTIME), so a
// change of the host's clock moves no sample. A rate needs two counters that belong together. It is unknown, which
// charts show as a gap, if the counter is less than before (its owner has been replaced), or if the sample before is
// older than two intervals (the host was suspended, or the owner did not answer).
package history

import (
	"context"
	"math"
	"sync"
	"time"

	"fairlead/internal/api"

	"golang.org/x/sys/unix"
)

const (
	// Every is the interval between two samples.
	Every = 10 * time.Second
	// Kept is how many samples a Recorder keeps.
	Kept = int(time.Hour / Every)
	// Gap is the distance of two samples from which nothing is known of the time between them.
	Gap = 2 * Every
)

// Recorder keeps the samples of some figures. Its methods may be called concurrently.
type Recorder struct {
	figures []Figure
	// of has the index of the figure that each Mean is divided by.
	of []int
	// now returns the time since the host was booted.
	now func() time.Duration

	mu sync.Mutex
	// times and values are rings of count samples, of which the newest is before next.
	times       []time.Duration
	values      []api.Figure
	next, count int
	// last are the values of the newest sample as they were read.
	last []float64
}

// New returns a Recorder without samples.
func New(figures []Figure) *Recorder {
	r := &Recorder{figures: figures, of: make([]int, len(figures)), now: sinceBoot, times: make([]time.Duration, Kept),
		values: make([]api.Figure, Kept*len(figures)), last: make([]float64, len(figures))}
	for i, f := range figures {
		for k, other := range figures {
			if f.Kind == Mean && other.Key == f.Of {
				r.of[i] = k
			}
		}
	}
	return r
}

// sinceBoot returns the time since the host was booted, with that for which it was suspended.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // it fails for an unknown clock only
	return time.Duration(ts.Nano())
}

// Run adds a sample every ten seconds until ctx ends. read returns the values that are known.
func (r *Recorder) Run(ctx context.Context, read func(context.Context) Values) {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		limited, cancel := context.WithTimeout(ctx, Every)
		values := read(limited)
		cancel()
		if ctx.Err() != nil {
			return
		}
		r.add(values)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// add adds a sample of now. A time before that of the newest sample belongs to another life of the host, such as that
// of a restored snapshot of a virtual machine: the earlier samples are forgotten.
func (r *Recorder) add(known Values) {
	r.mu.Lock()
	defer r.mu.Unlock()
	values := make([]float64, len(r.figures))
	for i, f := range r.figures {
		values[i] = math.NaN()
		if v, ok := known[f.Key]; ok {
			values[i] = v
		}
	}
	now := r.now()
	apart := Gap + 1
	if r.count > 0 {
		apart = now - r.times[(r.next+Kept-1)%Kept]
	}
	if apart <= 0 {
		r.count, apart = 0, Gap+1
	}
	row := r.values[r.next*len(r.figures):][:len(r.figures)]
	for i, f := range r.figures {
		switch change := values[i] - r.last[i]; {
		case f.Kind == Level:
			row[i] = api.Figure(values[i])
		case apart > Gap || change < 0:
			row[i] = api.Unknown()
		case f.Kind == Rate:
			row[i] = api.Figure(change / apart.Seconds())
		default:
			row[i] = mean(change, values[r.of[i]]-r.last[r.of[i]])
		}
	}
	r.times[r.next] = now
	r.last = values
	r.next, r.count = (r.next+1)%Kept, min(r.count+1, Kept)
}

func mean(change, of float64) api.Figure {
	if !(of > 0) { // also NaN
		return api.Unknown()
	}
	return api.Figure(change / of)
}

// History returns the samples of the last hour. Series without a known figure are left out.
func (r *Recorder) History() api.History {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	h := api.History{Ages: []float64{}, Series: map[string][]api.Figure{}}
	var rows []int
	for i := range r.count {
		row := (r.next - r.count + i + Kept) % Kept
		if age := now - r.times[row]; age >= 0 && age <= time.Hour {
			h.Ages = append(h.Ages, math.Round(age.Seconds()*10)/10)
			rows = append(rows, row)
		}
	}
	for k, f := range r.figures {
		series, known := make([]api.Figure, len(rows)), false
		for i, row := range rows {
			series[i] = r.values[row*len(r.figures)+k]
			known = known || series[i].Known()
		}
		if known {
			h.Series[f.Key] = series
		}
	}
	return h
}

// Read is History for callers that read figures of another process, too.
func (r *Recorder) Read(context.Context) (api.History, error) { return r.History(), nil }
