// Package services sends the requests of a service to its servers: load balancers, weighted services, mirrors, failover.
//
// It does not know routers and middlewares, and gets other services and the settings of transports as functions. A
// configuration's services are built one by one (build.go). Services has what survives changes: the servers with their
// connections, and health checks (checks.go); State has what one service keeps: its turns, and the conditions of its
// servers. Requests go from a handler, which chooses a server (strategy.go), to the server's forwarder, and from there
// what became of them goes to the condition and the exchange.
package services

import (
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"log/slog"
	"net/url"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"fairlead/internal/gateway/admission"
	"fairlead/internal/gateway/condition"
	"fairlead/internal/gateway/healthcheck"
	"fairlead/internal/gateway/metric"
	"fairlead/internal/gateway/transport"
	"fairlead/internal/model/gateway"
)

// Services has what services share and what survives changes: servers with their connections, and checks.
// Only one goroutine may call its methods at a time. The handlers that it builds serve requests meanwhile.
type Services struct {
	// Connect returns what sends requests to a server. Parts of a response are sent on after the time flush.
	Connect func(to *url.URL, via *gateway.ServersTransport, flush time.Duration) (transport.Forwarder, error)
	log     *slog.Logger
	metrics *metric.Metrics
	copies  admission.Copies
	running map[string]*server
	checks  map[string]runningCheck
	// wereDown are the servers that an earlier gateway has found down, by digest.
	wereDown map[string]bool
}

// checkOf is a service whose servers are checked.
type checkOf struct {
	value   gateway.HealthCheck
	servers []healthcheck.Server
	via     *gateway.ServersTransport
}

// runningCheck is a check with what it was started for.
type runningCheck struct {
	*healthcheck.Checks
	of checkOf
}

func (c checkOf) equal(o checkOf) bool {
	return slices.Equal(c.servers, o.servers) && reflect.DeepEqual(c.value, o.value) && reflect.DeepEqual(c.via, o.via)
}

// New returns the services of a gateway that has none yet.
func New(log *slog.Logger, metrics *metric.Metrics) *Services {
	return &Services{Connect: transport.New, log: log, metrics: metrics,
		copies:  admission.Copies{Log: log, Dropped: metrics.Dropped},
		running: map[string]*server{}, checks: map[string]runningCheck{}}
}

// State is what a service keeps when it is built again.
type State struct {
	// conditions are those of its servers.
	conditions map[*server]*condition.Condition
	// turns counts the turns of the service.
	turns *atomic.Uint64
	// check is nil if its servers are not checked.
	check *checkOf
}

// NewState returns the state for the next build of a service. last is nil if the service is new.
func NewState(last *State) *State {
	if last == nil {
		return &State{turns: new(atomic.Uint64)}
	}
	return &State{turns: last.turns}
}

// Servers returns the servers of the service with their conditions.
func (s *State) Servers() iter.Seq2[*url.URL, *condition.Condition] {
	return func(yield func(*url.URL, *condition.Condition) bool) {
		for at, c := range s.conditions {
			if !yield(at.url, c) {
				return
			}
		}
	}
}

// Down returns the servers that failed their last check, for Inherit of the next gateway.
func (s *State) Down(service string) (all []string) {
	for at, c := range s.conditions {
		if c.Down.Load() {
			all = append(all, digest(service, at.key))
		}
	}
	return all
}

// Inherit takes the servers that are down, until Inherited is called.
func (s *Services) Inherit(down []string) {
	s.wereDown = map[string]bool{}
	for _, d := range down {
		s.wereDown[d] = true
	}
}

// Inherited ends the effect of Inherit: all services are built.
func (s *Services) Inherited() { s.wereDown = nil }

// digest names a server of a service without the secrets that its key has.
func digest(service, key string) string {
	sum := sha256.Sum256([]byte(service + " " + key))
	return hex.EncodeToString(sum[:8])
}

// condition returns the condition of a server in a service: the last one if the service has had the server.
func (s *Services) condition(service string, at *server, last, now *State) *condition.Condition {
	if c := now.conditions[at]; c != nil {
		return c
	}
	var c *condition.Condition
	if last != nil {
		c = last.conditions[at]
	}
	if c == nil {
		c = new(condition.Condition)
		c.Down.Store(len(s.wereDown) > 0 && s.wereDown[digest(service, at.key)])
	}
	if now.conditions == nil {
		now.conditions = map[*server]*condition.Condition{}
	}
	now.conditions[at] = c
	at.uses++
	return c
}

// Release closes the servers that only a service which is gone, or was built again, has used.
func (s *Services) Release(gone *State) {
	for at := range gone.conditions {
		if at.uses--; at.uses == 0 {
			delete(s.running, at.key)
			at.forward.Close()
		}
	}
}

// Close closes the idle connections to all servers.
func (s *Services) Close() {
	for _, at := range s.running {
		at.forward.Close()
	}
}
