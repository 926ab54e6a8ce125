package transport

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/internal/model/gateway"
)

// slowClient is the body of a client that sends nothing, and the writer of its response.
type slowClient struct {
	*httptest.ResponseRecorder
	*io.PipeReader
	// deadlines: a deadline interrupts reads. Otherwise only Close does.
	deadlines bool
	// waits is closed at the first read. reading counts reads in progress.
	waits   chan struct{}
	first   sync.Once
	reading atomic.Int32
}

func (c *slowClient) Read(p []byte) (int, error) {
	c.reading.Add(1)
	defer c.reading.Add(-1)
	c.first.Do(func() { close(c.waits) })
	return c.PipeReader.Read(p)
}

func (c *slowClient) Close() error {
	if c.deadlines {
		return nil // as the body of HTTP/1.1
	}
	return c.PipeReader.Close()
}

func (c *slowClient) SetReadDeadline(time.Time) error {
	if !c.deadlines {
		return http.ErrNotSupported
	}
	return c.PipeReader.Close()
}

// TestLibraryGivesTheBodyBack lets servers answer, or reset the request, while the transport waits for the body:
// nothing reads it when Forward has returned, because a middleware may use the request then.
func TestLibraryGivesTheBodyBack(t *testing.T) {
	for name, server := range map[string]struct{ two, resets bool }{
		"HTTP/1.1 answers": {}, "HTTP/2 answers": {two: true}, "HTTP/2 resets": {two: true, resets: true}} {
		for _, deadlines := range []bool{false, true} {
			from, client := io.Pipe()
			defer client.Close()
			c := &slowClient{ResponseRecorder: httptest.NewRecorder(), PipeReader: from, deadlines: deadlines,
				waits: make(chan struct{})}
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				<-c.waits
				if server.resets {
					panic(http.ErrAbortHandler)
				}
				_ = http.NewResponseController(w).EnableFullDuplex() // otherwise the server reads the body first
				w.WriteHeader(http.StatusNoContent)
			}))
			s.EnableHTTP2 = server.two
			s.StartTLS()
			defer s.Close()
			to, _ := url.Parse(s.URL)
			l, err := newLibrary(to, &gateway.ServersTransport{InsecureSkipVerify: true}, -1)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Body, r.ContentLength = c, -1
			err = l.Forward(c, r, "a.test")
			if n := c.reading.Load(); n != 0 || (err != nil) != server.resets {
				t.Errorf("%s, deadlines %v: %v, %d goroutines read the body", name, deadlines, err, n)
			}
		}
	}
}

type faultyBody struct{ io.ReadCloser }

func (faultyBody) Read([]byte) (int, error) { panic("a mistake in Read") }

// faultyWriter panics when it writes interim responses or parts.
type faultyWriter struct{ http.ResponseWriter }

func (w faultyWriter) WriteHeader(status int) {
	if status < 200 {
		panic("a mistake in WriteHeader")
	}
	w.ResponseWriter.WriteHeader(status)
}

func (faultyWriter) FlushError() error { panic("a mistake in Flush") }

// TestPanicsOnGoroutinesOfLibraries lets a body and a response panic where net/http uses them on
// goroutines of its own.
func TestPanicsOnGoroutinesOfLibraries(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.Copy(w, r.Body)
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, "more")
	}))
	defer s.Close()
	to, _ := url.Parse(s.URL)
	l, err := newLibrary(to, &gateway.ServersTransport{InsecureSkipVerify: true}, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/", faultyBody{io.NopCloser(bytes.NewReader(nil))})
	r.ContentLength = 10
	if err := l.Forward(out, r, "a.test"); err == nil {
		t.Error("a body that panics is no error")
	}
	out = httptest.NewRecorder()
	r = httptest.NewRequest(http.MethodPost, "/", bytes.NewReader([]byte("text")))
	err = l.Forward(faultyWriter{out}, r, "a.test")
	if err != nil || out.Code != http.StatusOK {
		t.Errorf("a response whose parts cannot be flushed: %v, status %d", err, out.Code)
	}
}
