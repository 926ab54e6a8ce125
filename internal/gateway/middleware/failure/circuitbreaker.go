package failure

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/gateway/middleware/outcome"
	"fairlead/internal/model/gateway"
)

// breakerState is a state of a circuit breaker.
type breakerState int

const (
	// closed: all requests pass.
	closed breakerState = iota
	// open: no request passes.
	open
	// recovering: a growing share of the requests passes.
	recovering
)

// circuitBreaker stops requests to a failing service for a while.
type circuitBreaker struct {
	trips                   func(*breakerStats) bool
	check, fallback, repair time.Duration
	now                     func() time.Time

	mu    sync.Mutex
	state breakerState
	since time.Time
	// checked is when the expression was last evaluated.
	checked time.Time
	stats   breakerStats
	// credit sums up the shares of requests that may pass while recovering; a request
	// that passes costs 1.
	credit float64
}

// breakerFunctions are those of Traefik's expressions.
var breakerFunctions = map[string]base.Function[*breakerStats]{
	"NetworkErrorRatio": {Number: func(s *breakerStats, _ []float64) float64 { return s.networkErrorRatio() }},
	"ResponseCodeRatio": {Args: 4, Number: func(s *breakerStats, args []float64) float64 {
		return s.statusRatio(args[0], args[1], args[2], args[3])
	}},
	"LatencyAtQuantileMS": {Args: 1, Number: func(s *breakerStats, args []float64) float64 {
		return s.latency(args[0])
	}},
}

// NewCircuitBreaker refuses requests for a while after an expression about the last
// responses has become true. Then it lets a growing share of the requests pass, and all
// if the expression stays false.
func NewCircuitBreaker(b *base.Builder, v *gateway.CircuitBreaker) (base.Func, error) {
	trips, err := base.ParseExpression(v.Expression, breakerFunctions)
	if err != nil {
		return nil, err
	}
	c := &circuitBreaker{trips: trips, now: b.Now, check: cmp.Or(v.CheckPeriod, 100*time.Millisecond),
		fallback: cmp.Or(v.FallbackDuration, 10*time.Second), repair: cmp.Or(v.RecoveryDuration, 10*time.Second)}
	if min(c.check, c.fallback, c.repair) < 0 {
		return nil, errors.New("durations must not be negative")
	}
	status := v.ResponseCode
	if status == 0 {
		status = http.StatusServiceUnavailable
	}
	if http.StatusText(status) == "" || status < 200 {
		return nil, fmt.Errorf("use responseCode %d: it is not a status of HTTP responses", status)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			begin := c.now()
			if !c.admit(begin) {
				base.Refuse(w, status)
				return
			}
			c.serve(w, r, next, begin)
		})
	}, nil
}

// serve calls the next handler and records its response. A handler that panics, because its server has cut
// the response, counts as a network error. A failure by the client's fault does not count: it would open the
// circuit for all clients. For the same reason, the latency is the time from the last part of the request's body to
// the head of the response: a client may be as slow as it likes.
func (c *circuitBreaker) serve(w http.ResponseWriter, r *http.Request, next http.Handler, begin time.Time) {
	result, complete, ended := http.StatusOK, false, time.Time{}
	defer func() {
		if outcome.FaultOf(w) == outcome.ClientFault {
			return
		}
		now := c.now()
		if !complete {
			result = http.StatusBadGateway
		}
		if ended.IsZero() {
			ended = now
		}
		c.record(now, ended.Sub(outcome.Later(begin, outcome.LastRead(r.Body))), result)
	}()
	next.ServeHTTP(&base.HeadWriter{ResponseWriter: w, Before: func(status int) { result, ended = status, c.now() }}, r)
	complete = true
}

// admit returns whether a request may pass.
func (c *circuitBreaker) admit(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	age := now.Sub(c.since)
	if c.state == open && age >= c.fallback {
		c.change(recovering, now)
		age = 0
	}
	if c.state == recovering && age >= c.repair {
		c.change(closed, now)
	}
	switch c.state {
	case open:
		return false
	case closed:
		return true
	}
	if c.credit += float64(age) / float64(c.repair); c.credit < 1 {
		return false
	}
	c.credit--
	return true
}

// record counts a response and evaluates the expression, if the last time is long enough
// ago.
func (c *circuitBreaker) record(now time.Time, latency time.Duration, status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == open {
		return // The request passed before.
	}
	c.stats.add(now, status, latency)
	if now.Sub(c.checked) < c.check {
		return
	}
	c.checked = now
	if c.trips(&c.stats) {
		c.change(open, now)
	}
}

func (c *circuitBreaker) change(state breakerState, now time.Time) {
	c.state, c.since, c.credit = state, now, 0
	c.stats.reset()
}
