package limit

import (
	"errors"
	"net/http"
	"sync"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// inFlight counts the requests of each source that are not answered yet.
type inFlight struct {
	mu    sync.Mutex
	count map[uint64]int64
}

// NewInFlightReq answers with 429 if a source, by default a host, has too many requests
// that are not answered yet.
func NewInFlightReq(_ *base.Builder, v *gateway.InFlightReq) (base.Func, error) {
	if v.Amount <= 0 {
		return nil, errors.New("set amount to the number of requests at the same time")
	}
	source, err := newSource(v.SourceCriterion, gateway.SourceCriterion{RequestHost: true})
	if err != nil {
		return nil, err
	}
	f := &inFlight{count: map[uint64]int64{}}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key := source(r)
			if !f.enter(key, v.Amount) {
				base.Refuse(w, http.StatusTooManyRequests)
				return
			}
			defer f.leave(key)
			next.ServeHTTP(w, r)
		})
	}, nil
}

func (f *inFlight) enter(key uint64, limit int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count[key] >= limit {
		return false
	}
	f.count[key]++
	return true
}

func (f *inFlight) leave(key uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count[key]--; f.count[key] == 0 {
		delete(f.count, key)
	}
}
