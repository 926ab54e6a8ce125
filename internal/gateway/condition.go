package gateway

import (
	"cmp"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"fairlead/internal/gateway/middleware"
	"fairlead/internal/model/gateway"
)

// passive takes servers out after failed requests (Traefik 3.6, passiveHealthCheck): a
// server with so many failures within the window gets no request for one window.
type passive struct {
	window time.Duration
	most   int
}

func newPassive(value *gateway.PassiveHealthCheck) *passive {
	if value == nil {
		return nil
	}
	return &passive{window: cmp.Or(value.FailureWindow, 10*time.Second), most: max(1, value.MaxFailedAttempts)}
}

// failures are the recent failures of a service's requests to a server.
type failures struct {
	mu    sync.Mutex
	times []time.Time
	// until is when the server gets requests again, in nanoseconds since 1970. 0 means that
	// it was never taken out.
	until atomic.Int64
}

// add records a failure, and reports whether it takes the server out.
func (f *failures) add(p *passive, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	recent := f.times[:0]
	for _, t := range f.times {
		if now.Sub(t) < p.window {
			recent = append(recent, t)
		}
	}
	if f.times = append(recent, now); len(f.times) < p.most {
		return false
	}
	f.times = nil
	f.until.Store(now.Add(p.window).UnixNano())
	return true
}

// clear forgets the failures after a success.
func (f *failures) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.times = nil
}

func (f *failures) out() bool {
	until := f.until.Load()
	return until != 0 && time.Now().UnixNano() < until
}

// condition says whether a service sends requests to one of its servers. Other services on the
// same server have their own: they check it in another way, or not at all. It lives as long as
// the service has the server, so it survives changes.
type condition struct {
	// down is true after failed checks.
	down     atomic.Bool
	failures failures
}

// isUp reports whether neither checks nor failed requests have taken the server out.
func (c *condition) isUp() bool { return !c.down.Load() && !c.failures.out() }

// member is a server of a service.
type member struct {
	*server
	*condition
}

// pace is the moving average of the time until a server's responses begin.
type pace struct {
	// average and last are in nanoseconds; last is the time of the last response.
	average, last atomic.Int64
}

// forget is the time in which the average of a server without requests halves, so that a
// slow server is tried again.
const forget = 10 * time.Second

// add adds a response. Concurrent responses may lose one another's part of the average.
func (p *pace) add(took time.Duration, now time.Time) {
	average := p.average.Load()
	if average == 0 {
		average = int64(took)
	}
	p.average.Store(average + (int64(took)-average)/8)
	p.last.Store(now.UnixNano())
}

func (p *pace) at(now time.Time) int64 {
	idle := (now.UnixNano() - p.last.Load()) / int64(forget)
	return p.average.Load() >> min(max(idle, 0), 62)
}

// byTime takes the server with the shortest expected time: the average time until a
// response begins, times the requests that wait, divided by the weight (Traefik 3.7,
// strategy leasttime). Servers with equal times take turns.
func (b *balancer) byTime(*http.Request) *place {
	up := b.usable()
	if len(up) == 0 {
		return nil
	}
	now := time.Now()
	var best *place
	least := 0.0
	start := b.turns.Next() // there is one: a server that is usable has a weight
	for i := range up {
		p := up[(start+i)%len(up)]
		score := float64(p.pace.at(now)) * float64(1+p.pending.Load()) / float64(p.weight)
		if best == nil || score < least {
			best, least = p, score
		}
	}
	return best
}

// learn records the outcome of a request for the choice of later ones. One that fails by another's fault
// than the server's says nothing about the server.
func (b *balancer) learn(p *place, r *http.Request, seen *watch, err error) {
	fault := faultOf(r, err)
	if fault == middleware.ClientFault || fault == middleware.GatewayFault || r.Context().Err() != nil {
		return
	}
	now := time.Now()
	if seen.first > 0 {
		p.pace.add(seen.first, now)
	}
	switch {
	case b.passive == nil:
	case fault == middleware.NoFault && seen.status < http.StatusInternalServerError:
		p.failures.clear()
	case p.failures.add(b.passive, now):
		b.log.Info("server is taken out after failed requests", "service", b.service, "server", gateway.ShownURL(p.url.String()),
			"for", b.passive.window)
	}
}
