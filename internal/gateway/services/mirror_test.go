package services

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"fairlead/internal/gateway/admission"
	"fairlead/internal/gateway/middleware"
	"fairlead/internal/gateway/middleware/outcome"
	"fairlead/internal/model/gateway"
)

// TestPanicsOfMirrors lets a copy of a request panic: the client has its response.
func TestPanicsOfMirrors(t *testing.T) {
	copied := make(chan struct{})
	m := &mirroring{service: http.NotFoundHandler(), count: new(atomic.Uint64), copies: new(admission.Copies),
		mirrors: []mirror{{percent: 100,
			service: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				defer close(copied)
				panic("a mistake")
			})}}}
	out := httptest.NewRecorder()
	m.ServeHTTP(out, httptest.NewRequest(http.MethodGet, "/", nil))
	if <-copied; out.Code != http.StatusNotFound {
		t.Errorf("status %d", out.Code)
	}
}

// TestCopiesAreNoAttempts sends a copy of a request that retry may send again: the copy must not change the attempt,
// which another goroutine uses.
func TestCopiesAreNoAttempts(t *testing.T) {
	attempts := make(chan *outcome.Attempt, 1)
	service := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { attempts <- outcome.AttemptOf(r) })
	m := &mirroring{service: http.NotFoundHandler(), count: new(atomic.Uint64), copies: new(admission.Copies),
		mirrors: []mirror{{percent: 100, service: service}}}
	retry, err := middleware.New("retry", &gateway.Middleware{Retry: &gateway.Retry{Attempts: 2}}, middleware.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	retry(m).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	if a := <-attempts; a != nil {
		t.Errorf("the copy is attempt %d", a.Number)
	}
}
