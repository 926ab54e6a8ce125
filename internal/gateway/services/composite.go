package services

import (
	"net"
	"net/http"
	"slices"
	"sync/atomic"

	"fairlead/internal/balance/wrr"
	"fairlead/internal/gateway/sticky"
	"fairlead/internal/model/gateway"
)

// available reports whether a handler has a server that is up.
type available interface{ available() bool }

// up reports whether requests to the handler can succeed as far as checks show.
func up(h http.Handler) bool {
	a, ok := h.(available)
	return !ok || a.available()
}

func (b *balancer) available() bool { return len(b.usable()) > 0 }

// weighted divides requests between services.
type weighted struct {
	services []http.Handler
	// values are the values of the cookie that name the services; the first ones are sent.
	values [][]string
	cookie *gateway.Cookie
	turns  *wrr.Turns
}

func newWeighted(name string, value *gateway.Weighted, services []http.Handler, turns *atomic.Uint64) *weighted {
	w := &weighted{services: services, cookie: sticky.Cookie(name, value.Sticky)}
	for _, s := range value.Services {
		w.values = append(w.values, sticky.ServiceValues(name, s.Name))
	}
	w.turns = wrr.NewTurns(weightsOf(value), turns)
	return w
}

// weightsOf returns the weights of the services, by default 1.
func weightsOf(value *gateway.Weighted) []int {
	weights := make([]int, len(value.Services))
	for i, s := range value.Services {
		if weights[i] = 1; s.Weight != nil {
			weights[i] = *s.Weight
		}
	}
	return weights
}

func (w *weighted) available() bool {
	for _, i := range w.turns.Ring() {
		if up(w.services[i]) {
			return true
		}
	}
	return false
}

// ServeHTTP implements http.Handler.
func (w *weighted) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if w.cookie != nil {
		if c, err := r.Cookie(w.cookie.Name); err == nil {
			for i, v := range w.values {
				if slices.Contains(v, c.Value) && up(w.services[i]) {
					sticky.Renew(rw, w.cookie, c.Value, v[0])
					w.services[i].ServeHTTP(rw, r)
					return
				}
			}
		}
	}
	for range w.turns.Ring() {
		i := w.turns.Next()
		if !up(w.services[i]) {
			continue
		}
		if w.cookie != nil {
			sticky.Set(rw, w.cookie, w.values[i][0])
		}
		w.services[i].ServeHTTP(rw, r)
		return
	}
	unavailable(rw)
}

// rendezvous divides clients between services: the highest weighted hash of a client's address and a
// service decides, as for the servers of a load balancer with the strategy hrw.
type rendezvous struct {
	services []http.Handler
	names    []string
	weights  []int
}

func (s *rendezvous) available() bool { return slices.ContainsFunc(s.services, up) }

// ServeHTTP implements http.Handler.
func (s *rendezvous) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	client, _, _ := net.SplitHostPort(r.RemoteAddr)
	best, most := -1, 0.0
	for i, service := range s.services {
		if score := score(client, s.names[i], s.weights[i]); s.weights[i] > 0 && up(service) && (best < 0 ||
			score > most) {
			best, most = i, score
		}
	}
	if best < 0 {
		unavailable(w)
		return
	}
	s.services[best].ServeHTTP(w, r)
}

// failover sends requests to the fallback while the service has no server that is up.
type failover struct{ service, fallback http.Handler }

func (f *failover) available() bool { return up(f.service) || up(f.fallback) }

// ServeHTTP implements http.Handler.
func (f *failover) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if up(f.service) {
		f.service.ServeHTTP(w, r)
		return
	}
	f.fallback.ServeHTTP(w, r)
}
