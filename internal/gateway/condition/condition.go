// Package condition has what load balancers know about a server: whether health checks or failed requests have taken it
// out, and how fast it answers.
//
// It does not check servers, and does not decide which request has failed.
package condition

import (
	"cmp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fairlead/internal/model/gateway"
)

// Condition says whether a service sends requests to one of its servers. Other services on the
// same server have their own: they check it in another way, or not at all. It lives as long as
// the service has the server, so it survives changes. Its zero value is a server that is up.
type Condition struct {
	// Down is true after failed checks.
	Down atomic.Bool
	// until is when the server gets requests again after failed ones, in nanoseconds since 1970. 0 means that
	// it was never taken out.
	until atomic.Int64
	// last is the last failure of a request; nil if none has failed by the server's fault.
	last atomic.Pointer[Failure]

	mu sync.Mutex
	// failures are the times of the recent failed requests.
	failures []time.Time
}

// IsUp reports whether neither checks nor failed requests have taken the server out.
func (c *Condition) IsUp() bool {
	until := c.until.Load()
	return !c.Down.Load() && (until == 0 || time.Now().UnixNano() >= until)
}

// Failure is a request that has failed by the server's fault.
type Failure struct {
	At   time.Time
	Text string
}

// mostText is how many bytes the text of a failure has at most.
const mostText = 200

// Record keeps a failure, which is by the server's fault, for people who ask what happened last.
func (c *Condition) Record(err error, now time.Time) {
	text := err.Error()
	if len(text) > mostText {
		text = strings.ToValidUTF8(text[:mostText], "") + "…"
	}
	c.last.Store(&Failure{now, text})
}

// Last returns the failure that was recorded last, nil if there is none.
func (c *Condition) Last() *Failure { return c.last.Load() }

// Fail records a failed request, and reports whether it takes the server out.
func (c *Condition) Fail(p *Passive, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	recent := c.failures[:0]
	for _, t := range c.failures {
		if now.Sub(t) < p.Window {
			recent = append(recent, t)
		}
	}
	if c.failures = append(recent, now); len(c.failures) < p.most {
		return false
	}
	c.failures = nil
	c.until.Store(now.Add(p.Window).UnixNano())
	return true
}

// Succeed forgets the failed requests after one that has not failed.
func (c *Condition) Succeed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = nil
}

// Passive takes servers out after failed requests (Traefik 3.6, passiveHealthCheck): a
// server with so many failures within the window gets no request for one window.
type Passive struct {
	// Window is the time in which failures count, and for which the server is taken out.
	Window time.Duration
	most   int
}

// NewPassive returns the settings, nil if servers are not taken out.
func NewPassive(value *gateway.PassiveHealthCheck) *Passive {
	if value == nil {
		return nil
	}
	return &Passive{Window: cmp.Or(value.FailureWindow, 10*time.Second), most: max(1, value.MaxFailedAttempts)}
}
