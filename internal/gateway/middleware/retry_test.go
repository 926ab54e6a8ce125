package middleware_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/gateway/middleware"
	"fairlead/internal/gateway/middleware/outcome"
	"fairlead/internal/model/gateway"
)

// try is what the servers of a test do with one attempt.
type try struct {
	// status is the response's, read how much of the body the server reads before.
	status, read int
	// failed: the proxy gets no response; sent: after it has sent a part of the request.
	failed, sent bool
}

// servers answers attempts as listed, and records the bodies and servers.
func servers(tries []try, bodies *[]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		attempt := outcome.AttemptOf(r)
		number := len(*bodies)
		attempt.Use(fmt.Sprint("server", number))
		text, err := io.ReadAll(io.LimitReader(r.Body, int64(tries[number].read)))
		if err != nil {
			text = []byte(err.Error())
		}
		*bodies = append(*bodies, fmt.Sprint(len(attempt.Tried), r.Header.Get("X-Changed"), string(text)))
		r.Header.Add("X-Changed", "by a later middleware")
		w.Header().Set("X-Try", fmt.Sprint(number))
		if tries[number].failed {
			attempt.Fail(tries[number].sent)
		}
		w.WriteHeader(tries[number].status)
		fmt.Fprint(w, "try", number)
	})
}

func TestRetry(t *testing.T) {
	large, status := int64(3), []string{"503"}
	ok := try{status: 200, read: 10}
	for _, c := range []struct {
		name, method string
		value        gateway.Retry
		tries        []try
		want         []string
		status       int
	}{
		{name: "no server", method: "POST", tries: []try{{status: 502, failed: true}, ok},
			want: []string{"1", "2body"}, status: 200},
		{name: "lost request", method: "PUT", tries: []try{{status: 502, failed: true, sent: true, read: 2}, ok},
			want: []string{"1bo", "2body"}, status: 200},
		{name: "lost request that changes", method: "POST", tries: []try{{status: 502, failed: true, sent: true}},
			want: []string{"1"}, status: 502},
		{name: "allowed", method: "POST", value: gateway.Retry{RetryNonIdempotentMethod: true},
			tries: []try{{status: 502, failed: true, sent: true, read: 9}, ok}, want: []string{"1body", "2body"},
			status: 200},
		{name: "large body", method: "PUT", value: gateway.Retry{MaxRequestBodyBytes: &large},
			tries: []try{{status: 502, failed: true, sent: true, read: 4}}, want: []string{"1body"}, status: 502},
		{name: "large body, not read", method: "PUT", value: gateway.Retry{MaxRequestBodyBytes: &large},
			tries: []try{{status: 502, failed: true, read: 3}, ok}, want: []string{"1bod", "2body"}, status: 200},
		{name: "server's own 502", method: "GET", tries: []try{{status: 502}}, want: []string{"1"}, status: 502},
		{name: "status", method: "PUT", value: gateway.Retry{Status: status},
			tries: []try{{status: 503, read: 9}, {status: 503}, ok}, want: []string{"1body", "2", "3body"},
			status: 200},
		{name: "status of a POST", method: "POST", value: gateway.Retry{Status: status}, tries: []try{{status: 503}},
			want: []string{"1"}, status: 503},
		{name: "disabled", method: "PUT", value: gateway.Retry{Status: status, DisableRetryOnNetworkError: true},
			tries: []try{{status: 502, failed: true}}, want: []string{"1"}, status: 502},
		{name: "last attempt", method: "PUT", tries: slices.Repeat([]try{{status: 502, failed: true}}, 3),
			want: []string{"1", "2", "3"}, status: 502},
	} {
		t.Run(c.name, func(t *testing.T) {
			var bodies []string
			c.value.Attempts = 3
			handler := build(t, gateway.Middleware{Retry: &c.value}, middleware.Deps{})(servers(c.tries, &bodies))
			r := request{method: c.method, body: "body", status: c.status, want: fmt.Sprint("try", len(c.want)-1),
				wantHeader: map[string]string{"X-Try": fmt.Sprint(len(c.want) - 1)}}
			r.check(t, serve(t, handler).URL)
			if !slices.Equal(bodies, c.want) {
				t.Errorf("the attempts got %q, want %q", bodies, c.want)
			}
		})
	}
}

func TestRetryTimeout(t *testing.T) {
	c := &clock{now: time.Unix(1000, 0)}
	value := gateway.Retry{Attempts: 5, Timeout: time.Second, InitialInterval: time.Millisecond}
	calls := 0
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		c.pass(600 * time.Millisecond)
		outcome.AttemptOf(r).Fail(false)
		w.WriteHeader(502)
	})
	wrapped := build(t, gateway.Middleware{Retry: &value}, middleware.Deps{Now: c.time})(handler)
	if got := ask(wrapped, ""); got.Code != 502 || calls != 2 {
		t.Errorf("status %d after %d attempts, want 502 after 2", got.Code, calls)
	}
}

// TestRetryCancelled checks that a request of a client that has gone is not sent again.
func TestRetryCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		outcome.AttemptOf(r).Fail(false)
		cancel()
		w.WriteHeader(502)
	})
	wrapped := build(t, gateway.Middleware{Retry: &gateway.Retry{Attempts: 5}}, middleware.Deps{})(handler)
	wrapped.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/", nil))
	if calls != 1 {
		t.Errorf("%d attempts, want 1", calls)
	}
}

// TestRetryOldReader checks that a goroutine that still has the body of an old attempt
// takes nothing from the next one.
func TestRetryOldReader(t *testing.T) {
	var old io.Reader
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if outcome.AttemptOf(r).Number == 1 {
			old = r.Body
			_, _ = io.CopyN(io.Discard, r.Body, 2)
			outcome.AttemptOf(r).Fail(true)
			w.WriteHeader(502)
			return
		}
		if n, err := old.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("the old attempt reads %d bytes, %v", n, err)
		}
		echo().ServeHTTP(w, r)
	})
	run(t, gateway.Middleware{Retry: &gateway.Retry{Attempts: 2}}, handler, []request{{name: "old reader",
		method: "PUT", body: strings.Repeat("x", 5), want: "PUT / xxxxx"}})
}

// limitedReads counts the limits that are set for reads of the request's body.
type limitedReads struct {
	*httptest.ResponseRecorder
	set int
}

func (l *limitedReads) SetReadDeadline(time.Time) error {
	l.set++
	return nil
}

// TestRetryKeepsReading ends attempts as the proxy does that has a response before it has sent the body: it interrupts
// reads of the body. The interruption by the first attempt does not reach the next one.
func TestRetryKeepsReading(t *testing.T) {
	out := &limitedReads{ResponseRecorder: httptest.NewRecorder()}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first := outcome.AttemptOf(r).Number == 1
		if first {
			_, _ = io.CopyN(io.Discard, r.Body, 2)
			w.WriteHeader(503)
		} else {
			echo().ServeHTTP(w, r)
		}
		if err := http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Error(err)
		}
		if first && out.set != 0 {
			t.Error("the first attempt interrupts the body of the second")
		}
	})
	wrapped := build(t, gateway.Middleware{Retry: &gateway.Retry{Attempts: 2, Status: []string{"503"}}},
		middleware.Deps{})(handler)
	wrapped.ServeHTTP(out, httptest.NewRequest("PUT", "/", strings.NewReader("xxxxx")))
	if got := out.Body.String(); got != "PUT / xxxxx" || out.set != 1 {
		t.Errorf("the response is %q, and the last attempt has interrupted reads %d times", got, out.set)
	}
}

// silentBody is a body of which the client sends nothing until it is closed.
type silentBody struct{ reading, closed chan struct{} }

func (b silentBody) Read([]byte) (int, error) {
	close(b.reading)
	<-b.closed
	return 0, io.ErrUnexpectedEOF
}

func (b silentBody) Close() error { return nil }

// TestRetryDoesNotWaitForBody answers while the body waits for the client: there is no second attempt, because the end
// of the first one interrupts the wait.
func TestRetryDoesNotWaitForBody(t *testing.T) {
	body := silentBody{make(chan struct{}), make(chan struct{})}
	ended := make(chan struct{})
	attempts := 0
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if attempts++; attempts == 1 {
			go func() {
				defer close(ended)
				_, _ = r.Body.Read(make([]byte, 1))
			}()
			<-body.reading
		}
		w.WriteHeader(503)
	})
	wrapped := build(t, gateway.Middleware{Retry: &gateway.Retry{Attempts: 3, Status: []string{"503"}}},
		middleware.Deps{})(handler)
	r := httptest.NewRequest("PUT", "/", nil)
	r.Body = body
	out := httptest.NewRecorder()
	wrapped.ServeHTTP(out, r)
	if out.Code != 503 || attempts != 1 {
		t.Errorf("status %d after %d attempts, want 503 after 1", out.Code, attempts)
	}
	close(body.closed)
	<-ended
}

// TestAttemptOfNone checks that a proxy can report failures without a retry.
func TestAttemptOfNone(t *testing.T) {
	attempt := outcome.AttemptOf(httptest.NewRequest("GET", "/", nil))
	attempt.Use("a")
	attempt.Fail(true)
	if attempt != nil {
		t.Error("a request without retry has an attempt")
	}
}
