package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"fairlead/internal/gateway/middleware"
	"fairlead/internal/gateway/middleware/outcome"
	"fairlead/internal/model/gateway"
)

func TestBuffering(t *testing.T) {
	value := gateway.Buffering{MaxRequestBodyBytes: 10, MemRequestBodyBytes: 4, MaxResponseBodyBytes: 100,
		MemResponseBodyBytes: 4}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, err := io.Copy(w, strings.NewReader(long))
			if err == nil {
				t.Error("a response over the limit is accepted")
			}
			panic(http.ErrAbortHandler) // As a proxy does.
		}
		if want := int64(len(r.URL.Query().Get("body"))); r.ContentLength != want || len(r.TransferEncoding) > 0 {
			t.Errorf("length %d and %v, want %d", r.ContentLength, r.TransferEncoding, want)
		}
		w.Header().Set("X-Out", "1")
		w.WriteHeader(201)
		echo().ServeHTTP(w, r)
		_ = http.NewResponseController(w).Flush()
		fmt.Fprint(w, " end")
	})
	run(t, gateway.Middleware{Buffering: &value}, handler, []request{
		{name: "no body", status: 201, want: "GET / end", wantHeader: map[string]string{"X-Out": "1",
			"Content-Length": "9"}},
		{name: "in memory", method: "POST", target: "/?body=abc", body: "abc", status: 201,
			want: "POST /?body=abc abc end"},
		{name: "in a file", method: "POST", target: "/?body=abcdefghij", body: "abcdefghij", status: 201,
			want: "POST /?body=abcdefghij abcdefghij end"},
		{name: "too large", method: "POST", body: "abcdefghijk", status: 413},
		{name: "too large, with an upgrade", method: "POST", body: "abcdefghijk", status: 413,
			header: map[string]string{"Connection": "Upgrade", "Upgrade": "websocket"}},
		{name: "large response", target: "/large", status: 500, want: "Internal Server Error",
			wantHeader: map[string]string{"X-Out": ""}},
	})
}

// TestBufferingChunked checks bodies without a length.
func TestBufferingChunked(t *testing.T) {
	value := gateway.Middleware{Buffering: &gateway.Buffering{MaxRequestBodyBytes: 10}}
	server := serve(t, build(t, value, middleware.Deps{})(echo()))
	for body, want := range map[string]int{"abcdefghij": 200, "abcdefghijk": 413} {
		response, err := http.Post(server.URL, "text/plain", io.MultiReader(strings.NewReader(body)))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: status %d, want %d", body, response.StatusCode, want)
		}
	}
}

func TestBufferingRetries(t *testing.T) {
	for _, c := range []struct {
		expression string
		status     int
		want       int
	}{
		{"IsNetworkError() && Attempts() < 3", 502, 3},
		{"Attempts() < 3 && (IsNetworkError())", 504, 3},
		{"IsNetworkError() && Attempts() < 3", 500, 1},
		{"ResponseCode() >= 500 || Attempts() == 1", 200, 2},
		{"!IsNetworkError() && Attempts() != 2", 500, 2},
		{"ResponseCode() == 500", 500, 10},
	} {
		calls := 0
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls++
			w.Header().Add("X-Attempt", fmt.Sprint(calls))
			r.Header.Add("X-Changed", "1")
			w.WriteHeader(c.status)
			echo("X-Changed").ServeHTTP(w, r)
		})
		value := gateway.Buffering{RetryExpression: c.expression}
		run(t, gateway.Middleware{Buffering: &value}, handler, []request{{name: c.expression, method: "POST",
			body: "body", status: c.status, want: "POST / X-Changed=1 body",
			wantHeader: map[string]string{"X-Attempt": fmt.Sprint(c.want)}}})
	}
}

// TestBufferingFaults checks whose fault it is if a body cannot be stored.
func TestBufferingFaults(t *testing.T) {
	handler := build(t, gateway.Middleware{Buffering: &gateway.Buffering{MemRequestBodyBytes: 1}},
		middleware.Deps{})(echo())
	t.Setenv("TMPDIR", t.TempDir()+"/absent")
	for name, c := range map[string]struct {
		body   io.Reader
		status int
		fault  outcome.Fault
	}{
		"aborted": {io.MultiReader(strings.NewReader("a"), iotest.ErrReader(io.ErrUnexpectedEOF)), 400,
			outcome.ClientFault},
		"silent":    {iotest.ErrReader(os.ErrDeadlineExceeded), 408, outcome.ClientFault},
		"no space":  {strings.NewReader("abc"), 500, outcome.GatewayFault},
		"in memory": {strings.NewReader("a"), 200, outcome.NoFault},
	} {
		w := &blamed{ResponseRecorder: httptest.NewRecorder()}
		handler.ServeHTTP(w, httptest.NewRequest("POST", "/", c.body))
		if w.Code != c.status || w.fault != c.fault {
			t.Errorf("%s: status %d, fault %d, want %d and %d", name, w.Code, w.fault, c.status, c.fault)
		}
	}
}

// blamed is a response writer that records the fault of its request.
type blamed struct {
	*httptest.ResponseRecorder
	fault outcome.Fault
}

func (b *blamed) Fault() outcome.Fault     { return b.fault }
func (b *blamed) SetFault(f outcome.Fault) { b.fault = f }
