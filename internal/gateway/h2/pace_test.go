package h2

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// TestPacerInterruptsSilentClients checks that an upload and a download over HTTP/2 end
// if the client stops, and that a slow client is served to the end.
func TestPacerInterruptsSilentClients(t *testing.T) {
	failed := make(chan error, 1)
	p := NewPacer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		if r.URL.Path == "/up" {
			_, err = io.Copy(io.Discard, r.Body)
		} else {
			for err == nil {
				_, err = w.Write(make([]byte, 64<<10))
			}
		}
		failed <- err
	}), time.Second, time.Second)
	s := httptest.NewUnstartedServer(p)
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	from, to := io.Pipe()
	defer to.Close()
	go func() { _, _ = s.Client().Post(s.URL+"/up", "", from) }()
	_, _ = to.Write([]byte("begin"))
	if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an upload without progress ended with %v, want a timeout", err)
	}
	answer, err := s.Client().Get(s.URL + "/down")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := <-failed; err == nil {
		t.Error("a download without progress did not end")
	}
}

// TestPacerDoesNotEndSlowClients moves the clock instead of waiting.
func TestPacerDoesNotEndSlowClients(t *testing.T) {
	p := NewPacer(nil, 10*time.Second, 10*time.Second)
	at := &paced{ResponseWriter: httptest.NewRecorder(), body: io.NopCloser(endless{}), now: &p.now}
	for step := range int64(100) {
		p.now.Store(1 + step*10)
		moved := time.Unix(11+step*10, 0)
		before := at.reading.Load()
		if _, err := at.Read(make([]byte, 1)); err != nil || before != 0 || at.reading.Load() != 0 {
			t.Fatalf("step %d: reading since %d, error %v", step, before, err)
		}
		at.reading.Store(p.now.Load())
		if exceeds(&at.reading, moved, p.read) {
			t.Fatalf("step %d: a client that sends every 10 s is interrupted", step)
		}
		if !exceeds(&at.reading, moved.Add(time.Second), p.read) {
			t.Fatalf("step %d: a client that is silent for 11 s is not interrupted", step)
		}
		at.reading.Store(0)
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// TestPacerWaitsForServers checks that the library's limit of a whole response does not
// end one whose server is slow.
func TestPacerWaitsForServers(t *testing.T) {
	p := NewPacer(nil, time.Minute, time.Minute)
	w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	at := &paced{ResponseWriter: w, now: &p.now}
	p.add(at)
	if p.inspect(); !w.deadline.IsZero() {
		t.Errorf("a new response has the deadline %v", w.deadline)
	}
	at.extended -= 31
	if p.inspect(); time.Until(w.deadline) < time.Minute {
		t.Errorf("a response that its server has not begun has the deadline %v", w.deadline)
	}
	p.remove(at)
	p.inspect()
	if p.timer != nil {
		t.Error("without requests, the inspections go on")
	}
}

type deadlineRecorder struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (w *deadlineRecorder) SetWriteDeadline(t time.Time) error {
	w.deadline = t
	return nil
}
