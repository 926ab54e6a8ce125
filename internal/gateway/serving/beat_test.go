package serving

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"fairlead/internal/gateway"
	"fairlead/internal/gateway/status"

	"golang.org/x/sys/unix"
)

// TestBeat: a request that makes progress is reported at each tick, one that makes none is not.
func TestBeat(t *testing.T) {
	ticks, ended, done := make(chan time.Time), make(chan struct{}), make(chan struct{})
	steps := []uint64{0, 1, 1, 5, 5, 5, 6} // the first is the start
	at, sent := -1, 0
	go func() {
		defer close(done)
		beat(ticks, ended, func() uint64 { at++; return steps[at] }, func() error { sent++; return nil })
	}()
	for range len(steps) - 1 {
		ticks <- time.Time{}
	}
	close(ended)
	<-done
	if at != len(steps)-1 || sent != 3 {
		t.Errorf("%d reports after %d ticks, want 3 after %d", sent, at, len(steps)-1)
	}
	fails := errors.New("the link is closed")
	sent, at = 0, -1
	go func() { ticks <- time.Time{} }()
	beat(ticks, nil, func() uint64 { at++; return uint64(at) }, func() error { sent++; return fails })
	if sent != 1 {
		t.Errorf("%d reports over a closed link", sent)
	}
}

// links returns the two ends of a control socket.
func links(t *testing.T) (ends [2]*link) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "control")
		c, err := net.FileConn(file)
		if err = errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		ends[i] = &link{conn: c.(*net.UnixConn)}
	}
	return ends
}

// TestLongApply: a serving process that works for longer than the limit, and reports that, is asked to the end; one
// that is silent is given up.
func TestLongApply(t *testing.T) {
	if answer, err := longApply(t, time.Second, false); err == nil {
		t.Errorf("without reports: %+v", answer)
	}
	answer, err := longApply(t, time.Second, true)
	// A process without CPU time reports nothing.
	for limit := 4 * time.Second; err != nil && limit <= 16*time.Second; limit *= 2 {
		answer, err = longApply(t, limit, true)
	}
	if err != nil || len(answer.Statuses) != 1 {
		t.Errorf("with reports: %+v, error %v", answer, err)
	}
}

// longApply asks a process that works for twice as long as the limit.
func longApply(t *testing.T, limit time.Duration, reports bool) (response, error) {
	ends := links(t)
	p := &process{limit: limit, link: ends[0]}
	go func() {
		var r request
		if _, err := ends[1].receive(&r); err != nil {
			return
		}
		begun := time.Now()
		for time.Since(begun) < 2*limit {
			if reports && ends[1].send(response{ID: r.ID, Busy: true}, nil) != nil {
				return
			}
			select {
			case <-time.After(limit / 20):
			case <-t.Context().Done():
				return
			}
		}
		answer := response{ID: r.ID, Statuses: []status.Status{{Name: "last"}}}
		_ = ends[1].send(answer, nil) // fails if it was given up
	}()
	answer, _, err := p.call(t.Context(), request{Apply: new(change)}, nil)
	return answer, err
}

// TestApplyReportsProgress: the progress of a gateway grows with each object that it builds.
func TestApplyReportsProgress(t *testing.T) {
	g, err := gateway.New(settings("127.0.0.1:0"), optionsAt("").Log)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	s := &server{}
	if s.progress() != 0 {
		t.Error("there is progress without a gateway")
	}
	s.made.Store(g)
	before := s.progress()
	g.Apply(configOf("http://127.0.0.1:1"), nil)
	if s.progress() < before+2 {
		t.Errorf("the progress is %d after %d", s.progress(), before)
	}
}
