package middleware_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"fairlead/internal/gateway/middleware"
	"fairlead/internal/gateway/middleware/outcome"
	"fairlead/internal/model/gateway"
)

// backend answers with its status after its latency on a clock.
type backend struct {
	clock
	status  int
	latency time.Duration
}

func (b *backend) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	b.pass(b.latency)
	w.WriteHeader(b.status)
}

// newBreaker returns a backend behind a circuit breaker.
func newBreaker(t *testing.T, value gateway.CircuitBreaker) (*backend, http.Handler) {
	b := &backend{clock: clock{now: time.Unix(1000, 0)}, status: 200}
	return b, build(t, gateway.Middleware{CircuitBreaker: &value}, middleware.Deps{Now: b.time})(b)
}

// TestCircuitBreakerExpressions checks whether a request after responses with some
// statuses is refused.
func TestCircuitBreakerExpressions(t *testing.T) {
	for _, c := range []struct {
		name, expression string
		latency          time.Duration
		statuses         []int
		want             bool
	}{
		{name: "network", expression: "NetworkErrorRatio() > 0.4", statuses: []int{200, 200, 502, 504}, want: true},
		{name: "less network", expression: "NetworkErrorRatio() > 0.7", statuses: []int{200, 502, 504}},
		{name: "no network", expression: "NetworkErrorRatio() > 0", statuses: []int{200, 500, 503}},
		{name: "codes", expression: "ResponseCodeRatio(500, 600, 0, 600) >= 0.25",
			statuses: []int{200, 200, 404, 500}, want: true},
		{name: "fewer codes", expression: "ResponseCodeRatio(500, 599, 0, 600) > 0", statuses: []int{200, 404, 599}},
		{name: "of errors", expression: "ResponseCodeRatio(500, 503, 500, 600) == 0.5",
			statuses: []int{200, 502, 503}, want: true},
		{name: "slow", expression: "LatencyAtQuantileMS(50.0) > 100 && NetworkErrorRatio() > 0",
			latency: 150 * time.Millisecond, statuses: []int{200, 502}, want: true},
		{name: "fast", expression: "LatencyAtQuantileMS(50.0) > 100 && NetworkErrorRatio() > 0",
			latency: 90 * time.Millisecond, statuses: []int{200, 502}},
		{name: "seconds", expression: "LatencyAtQuantileMS(99) >= 3000 && LatencyAtQuantileMS(99) < 3200",
			latency: 3 * time.Second, statuses: []int{200}, want: true},
		{name: "exact", expression: "LatencyAtQuantileMS(100) == 7", latency: 7 * time.Millisecond,
			statuses: []int{200}, want: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, handler := newBreaker(t, gateway.CircuitBreaker{Expression: c.expression, ResponseCode: 429,
				CheckPeriod: time.Nanosecond})
			b.latency = c.latency
			for i, status := range c.statuses {
				b.pass(time.Millisecond)
				b.status = status
				if got := ask(handler, ""); got.Code != status {
					t.Fatalf("request %d: status %d, want %d", i, got.Code, status)
				}
			}
			if got := ask(handler, "").Code == 429; got != c.want {
				t.Errorf("the circuit breaker is open: %v, want %v", got, c.want)
			}
		})
	}
}

func TestCircuitBreakerStates(t *testing.T) {
	b, handler := newBreaker(t, gateway.CircuitBreaker{Expression: "NetworkErrorRatio() > 0.5",
		FallbackDuration: 20 * time.Second, RecoveryDuration: 10 * time.Second})
	// passed sends requests and returns how many reach the backend.
	passed := func(n int) (count int) {
		for range n {
			if ask(handler, "").Code == b.status {
				count++
			}
		}
		return count
	}
	expect := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d requests pass, want %d", what, got, want)
		}
	}
	expect("closed", passed(10), 10)
	b.status = 502
	expect("failing within the period", passed(50), 50)
	b.pass(time.Second)
	expect("trips at the next check", passed(50), 1)
	b.pass(19 * time.Second)
	b.status = 200
	expect("open", passed(50), 0)
	b.pass(time.Second)
	expect("begin of the recovery", passed(100), 0)
	b.pass(5 * time.Second)
	expect("half of the recovery", passed(100), 50)
	b.pass(2500 * time.Millisecond)
	expect("three quarters of the recovery", passed(100), 75)
	b.pass(2500 * time.Millisecond)
	expect("closed again", passed(100), 100)
	b.status = 502
	b.pass(11 * time.Second) // The successes are forgotten.
	expect("trips again", passed(10), 1)
	b.pass(20 * time.Second)
	ask(handler, "")
	b.pass(5 * time.Second)
	expect("trips while recovering", passed(100), 1)
	if got := ask(handler, ""); got.Code != 503 {
		t.Errorf("status %d, want 503", got.Code)
	}
}

// TestCircuitBreakerCutResponses checks that responses that a server cuts are network
// errors.
func TestCircuitBreakerCutResponses(t *testing.T) {
	value := gateway.CircuitBreaker{Expression: "NetworkErrorRatio() > 0.5"}
	handler := build(t, gateway.Middleware{CircuitBreaker: &value}, middleware.Deps{})(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
			panic(http.ErrAbortHandler)
		}))
	func() {
		defer func() { _ = recover() }()
		ask(handler, "")
		t.Error("the panic does not reach the server")
	}()
	if got := ask(handler, ""); got.Code != 503 {
		t.Errorf("status %d, want 503", got.Code)
	}
}

// slowBody is the body of a client that takes a minute for it.
type slowBody struct {
	*clock
	at time.Time
}

func (s *slowBody) Read(p []byte) (int, error) {
	s.pass(time.Minute)
	s.at = s.time()
	return copy(p, "x"), io.EOF
}
func (s *slowBody) Close() error        { return nil }
func (s *slowBody) LastRead() time.Time { return s.at }

// TestCircuitBreakerIgnoresClients: clients that are slow, or whose requests fail by their own fault, open no circuit.
// The same failures by a server's fault do.
func TestCircuitBreakerIgnoresClients(t *testing.T) {
	for _, c := range []struct {
		name  string
		serve func(*clock, http.ResponseWriter, *http.Request)
		fault outcome.Fault
		open  bool
	}{
		{"slow upload", func(_ *clock, w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(200)
		}, outcome.NoFault, false},
		{"slow download", func(at *clock, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
			at.pass(time.Minute)
		}, outcome.NoFault, false},
		{"slow server", func(at *clock, w http.ResponseWriter, _ *http.Request) {
			at.pass(time.Minute)
			w.WriteHeader(200)
		}, outcome.NoFault, true},
		{"aborted by the client", func(_ *clock, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
			panic(http.ErrAbortHandler)
		}, outcome.ClientFault, false},
		{"aborted by the server", func(_ *clock, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
			panic(http.ErrAbortHandler)
		}, outcome.ServerFault, true},
		{"refused by the client's fault", func(_ *clock, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) },
			outcome.ClientFault, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := &clock{now: time.Unix(1000, 0)}
			handler := build(t, gateway.Middleware{CircuitBreaker: &gateway.CircuitBreaker{CheckPeriod: time.Nanosecond,
				Expression:       "LatencyAtQuantileMS(50.0) > 100 || NetworkErrorRatio() > 0",
				FallbackDuration: time.Hour}}, middleware.Deps{Now: at.time})(http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) { c.serve(at, w, r) }))
			for range 3 {
				func() {
					defer func() { _ = recover() }() // as a server does
					r := httptest.NewRequest("POST", "/", nil)
					r.Body = &slowBody{clock: at}
					handler.ServeHTTP(&blamed{httptest.NewRecorder(), c.fault}, r)
				}()
				at.pass(time.Second)
			}
			w := &blamed{ResponseRecorder: httptest.NewRecorder()}
			func() {
				defer func() { _ = recover() }()
				handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			}()
			if (w.Code == http.StatusServiceUnavailable) != c.open {
				t.Errorf("afterwards, a request gets %d; the circuit must be open: %v", w.Code, c.open)
			}
		})
	}
}
