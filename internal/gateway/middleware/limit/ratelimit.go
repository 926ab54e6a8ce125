// Package limit has the middlewares that limit clients: rateLimit, inFlightReq, ipAllowList.
package limit

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// maxSources bounds the memory of a rate limit to a few megabytes. Sources that have
// all their tokens need no entry.
const maxSources = 1 << 16

// rateLimit is a token bucket per source, as the generic cell rate algorithm: a source's
// state is one number, the time at which its bucket is full again.
type rateLimit struct {
	// interval is the time per token, burst the time that fills a bucket. A request that
	// is at most delay too early waits.
	interval, burst, delay time.Duration
	begin                  time.Time

	mu sync.Mutex
	// full is since begin.
	full map[uint64]time.Duration
	// swept is when the full buckets were last removed.
	swept time.Duration
}

// NewRateLimit answers requests over the rate of their source with 429. A request that is
// less than half an interval too early, and at most 500 ms, waits instead.
func NewRateLimit(b *base.Builder, v *gateway.RateLimit) (base.Func, error) {
	switch {
	case v.Redis != nil:
		return nil, errors.New("rates are not shared with Redis: remove redis, and divide average by the number " +
			"of gateways")
	case v.Average < 0, v.Burst < 0, v.Period < 0:
		return nil, errors.New("average, burst and period must not be negative")
	}
	source, err := newSource(v.SourceCriterion, gateway.SourceCriterion{})
	if err != nil {
		return nil, err
	}
	if v.Average == 0 {
		return func(next http.Handler) http.Handler { return next }, nil
	}
	period := v.Period
	if period == 0 {
		period = time.Second
	}
	l := &rateLimit{interval: max(1, period/time.Duration(v.Average)), begin: b.Now(), full: map[uint64]time.Duration{}}
	l.delay = min(l.interval/2, 500*time.Millisecond)
	tokens := max(1, v.Burst)
	if tokens > math.MaxInt64/4/int64(l.interval) {
		return nil, errors.New("burst is too large: it takes centuries to refill")
	}
	l.burst = time.Duration(tokens) * l.interval
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			wait, ok := l.take(source(r), b.Now().Sub(l.begin))
			if !ok {
				tooMany(w, wait)
				return
			}
			if base.Sleep(r, wait) {
				next.ServeHTTP(w, r)
			}
		})
	}, nil
}

// tooMany answers with 429.
func tooMany(w http.ResponseWriter, wait time.Duration) {
	w.Header().Set("Retry-After", strconv.FormatInt(int64(math.Ceil(wait.Seconds())), 10))
	w.Header().Set("X-Retry-In", wait.String())
	base.Refuse(w, http.StatusTooManyRequests)
}

// take takes a token of a source. It returns how long the request has to wait; if that is
// too long, it takes no token and returns false.
func (l *rateLimit) take(source uint64, now time.Duration) (wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	full, known := l.full[source]
	full = max(now, full) + l.interval
	if wait = full - now - l.burst; wait > l.delay {
		return wait, false
	}
	if !known && len(l.full) >= maxSources {
		l.makeRoom(now)
	}
	l.full[source] = full
	return max(0, wait), true
}

// makeRoom removes the full buckets, at most once per interval, and a random one if no
// bucket is full.
func (l *rateLimit) makeRoom(now time.Duration) {
	if now-l.swept >= l.interval {
		l.swept = now
		for source, full := range l.full {
			if full <= now {
				delete(l.full, source)
			}
		}
	}
	if len(l.full) < maxSources {
		return
	}
	for source := range l.full {
		delete(l.full, source)
		return
	}
}
