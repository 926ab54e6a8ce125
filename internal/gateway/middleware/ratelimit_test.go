package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"fairlead/internal/gateway/middleware"
	"fairlead/internal/model/gateway"
)

// clock is a time that a test sets.
type clock struct{ now time.Time }

func (c *clock) time() time.Time { return c.now }

func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }

// ask sends a request with a source to a handler and returns the response.
func ask(handler http.Handler, source string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Source", source)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

func TestRateLimit(t *testing.T) {
	c := &clock{now: time.Unix(1000, 0)}
	value := gateway.RateLimit{Average: 6, Period: time.Minute, Burst: 3,
		SourceCriterion: &gateway.SourceCriterion{RequestHeaderName: "x-source"}}
	handler := build(t, gateway.Middleware{RateLimit: &value}, middleware.Deps{Now: c.time})(echo())
	for i, step := range []struct {
		pass   time.Duration
		source string
		want   int
	}{
		{0, "a", 200}, {0, "a", 200}, {0, "a", 200}, {0, "a", 429}, {0, "a", 429}, // The burst.
		{0, "b", 200},                // Another source.
		{9 * time.Second, "a", 429},  // Not yet one token.
		{time.Second, "a", 200},      // One token.
		{0, "a", 429},                // Only one.
		{time.Hour, "a", 200},        // All tokens again, and no more than the burst.
		{0, "a", 200}, {0, "a", 200}, //
		{0, "a", 429},
	} {
		c.pass(step.pass)
		if got := ask(handler, step.source); got.Code != step.want {
			t.Fatalf("request %d from %s: status %d, want %d", i, step.source, got.Code, step.want)
		}
	}
	refused := ask(handler, "a")
	if h := refused.Header(); h.Get("Retry-After") != "10" || h.Get("X-Retry-In") != "10s" {
		t.Errorf("the headers are %v", h)
	}
}

// TestRateLimitWaits checks that a request that is a little too early is delayed and not
// refused.
func TestRateLimitWaits(t *testing.T) {
	c := &clock{now: time.Unix(1000, 0)}
	value := gateway.RateLimit{Average: 1, Period: 10 * time.Millisecond}
	handler := build(t, gateway.Middleware{RateLimit: &value}, middleware.Deps{Now: c.time})(echo())
	for i, want := range []int{200, 429} {
		if got := ask(handler, ""); got.Code != want {
			t.Fatalf("request %d: status %d, want %d", i, got.Code, want)
		}
	}
	c.pass(6 * time.Millisecond)
	if got := ask(handler, ""); got.Code != 200 {
		t.Errorf("a request that is 4 ms too early: status %d", got.Code)
	}
}

func TestRateLimitNone(t *testing.T) {
	handler := build(t, gateway.Middleware{RateLimit: &gateway.RateLimit{}}, middleware.Deps{})(echo())
	for range 10 {
		if got := ask(handler, ""); got.Code != 200 {
			t.Fatalf("status %d", got.Code)
		}
	}
}

// TestRateLimitManySources checks that more sources than fit in memory neither fail nor
// free a source from its limit while there is room.
func TestRateLimitManySources(t *testing.T) {
	c := &clock{now: time.Unix(1000, 0)}
	value := gateway.RateLimit{Average: 1, SourceCriterion: &gateway.SourceCriterion{RequestHeaderName: "X-Source"}}
	handler := build(t, gateway.Middleware{RateLimit: &value}, middleware.Deps{Now: c.time})(echo())
	for i := range 70_000 {
		if got := ask(handler, fmt.Sprint(i)); got.Code != 200 {
			t.Fatalf("source %d: status %d", i, got.Code)
		}
		if i == 60_000 {
			if got := ask(handler, "0"); got.Code != 429 {
				t.Errorf("the first source again: status %d", got.Code)
			}
			c.pass(time.Second)
		}
	}
}

func TestInFlightReq(t *testing.T) {
	entered, leave := make(chan bool), make(chan bool)
	slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- true
		<-leave
	})
	value := gateway.InFlightReq{Amount: 2, SourceCriterion: &gateway.SourceCriterion{RequestHeaderName: "X-Source"}}
	handler := build(t, gateway.Middleware{InFlightReq: &value}, middleware.Deps{})(slow)
	codes := make(chan int)
	start := func(source string) {
		go func() { codes <- ask(handler, source).Code }()
		<-entered
	}
	start("a")
	start("a")
	if got := ask(handler, "a"); got.Code != 429 {
		t.Errorf("the third request: status %d", got.Code)
	}
	start("b")
	leave <- true // Any of the three.
	<-codes
	leave <- true
	leave <- true
	<-codes
	<-codes
	start("a")
	leave <- true
	if code := <-codes; code != 200 {
		t.Errorf("after the others: status %d", code)
	}
}
