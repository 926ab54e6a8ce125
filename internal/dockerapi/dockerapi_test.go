package dockerapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// serve returns the engine that answers with the function until the test ends.
func serve(t *testing.T, h http.HandlerFunc) *Engine {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	e, err := New(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestErrors checks what the error of a request says, and which errors callers can distinguish.
func TestErrors(t *testing.T) {
	for path, c := range map[string]struct {
		text string
		is   error
	}{
		"/hangs":   {"the engine has not answered in time", ErrSlow},
		"/stops":   {"the engine has not answered in time", ErrSlow},
		"/missing": {"No such container: web", os.ErrNotExist},
		"/proxy":   {"the engine answers 403 Forbidden: not allowed", nil},
		"/text":    {"read its answer: invalid character", nil},
	} {
		t.Run(path[1:], func(t *testing.T) {
			e := serve(t, func(w http.ResponseWriter, r *http.Request) {
				switch path {
				case "/hangs":
					<-r.Context().Done()
				case "/stops":
					_, _ = io.WriteString(w, `[{"Id":`)
					w.(http.Flusher).Flush()
					<-r.Context().Done()
				case "/missing":
					http.Error(w, `{"message":"No such container: web"}`, http.StatusNotFound)
				case "/proxy":
					http.Error(w, "not allowed", http.StatusForbidden)
				case "/text":
					_, _ = io.WriteString(w, "hello")
				}
			})
			if c.is == ErrSlow {
				e.Limit = 20 * time.Millisecond
			}
			var all []Listed
			err := e.Get(t.Context(), path, &all)
			if err == nil || !strings.HasPrefix(err.Error(), c.text) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("got %v, want %q", err, c.text)
			}
			if c.is == nil && errors.Is(err, os.ErrNotExist) {
				t.Errorf("%v counts as a missing object", err)
			}
		})
	}
}

// TestPostIsPatient checks that the limit for answers does not end a request that changes something.
func TestPostIsPatient(t *testing.T) {
	answer := make(chan struct{})
	e := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			<-answer
		}
		w.WriteHeader(http.StatusNoContent)
	})
	e.client.Transport.(*http.Transport).ResponseHeaderTimeout = time.Millisecond
	time.AfterFunc(50*time.Millisecond, func() { close(answer) })
	if err := e.Post(t.Context(), "/containers/web/restart"); err != nil {
		t.Error(err)
	}
}

// TestStream checks the events of two streams: the second one begins after the last event that was handled, and podman's
// names of events are Docker's.
func TestStream(t *testing.T) {
	e := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("since") {
		case "1.000000000":
			_, _ = io.WriteString(w, `{"Type":"container","Action":"died","timeNano":1500000000,"Actor":{"ID":"web"}}`)
		case "1.500000001":
			_, _ = io.WriteString(w, `{"Type":"network","Action":"connect","Actor":{"ID":"n","Attributes":{"container":"shop"}}}`)
		}
	})
	s := Subscription{Engine: e, Filter: Filter{"type": {"container"}}, Since: int64(time.Second)}
	for _, want := range []string{"die web", "connect shop"} {
		stream, err := s.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for event := range stream.Events {
			if got := event.Verb() + " " + event.Container(); got != want {
				t.Errorf("event %q, want %q", got, want)
			}
			s.Handled(event)
		}
		if !errors.Is(stream.Err(), ErrEnded) {
			t.Errorf("the stream ended with %v", stream.Err())
		}
	}
}

// TestStreamEnds checks that a stream ends with its context.
func TestStreamEnds(t *testing.T) {
	e := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := (&Subscription{Engine: e, Since: 1}).Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for range stream.Events {
		t.Error("there is an event")
	}
}

// TestPatientStream: an engine that starts begins its stream after it has restored its containers. A patient client
// waits, another one gives up.
func TestPatientStream(t *testing.T) {
	restored := make(chan struct{})
	e := serve(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-restored:
		case <-r.Context().Done():
			return
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	e.client.Transport.(*http.Transport).ResponseHeaderTimeout = 20 * time.Millisecond
	opened := make(chan error, 1)
	patient, impatient := Subscription{Engine: e, Since: 1, Patient: true}, Subscription{Engine: e, Since: 1}
	go func() {
		_, err := patient.Open(t.Context())
		opened <- err
	}()
	if _, err := impatient.Open(t.Context()); err == nil {
		t.Error("a client that is not patient has a stream that has not begun")
	}
	close(restored)
	if err := <-opened; err != nil {
		t.Errorf("the patient client: %v", err)
	}
}
