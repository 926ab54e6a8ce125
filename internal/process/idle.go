package process

import (
	"net/http"
	"sync"
	"time"

	"fairlead/internal/alarm"
)

// idle detects that a daemon has nothing left to do.
type idle struct {
	// over is closed when the daemon is idle. It is never closed if the daemon must
	// not end when idle.
	over  chan struct{}
	empty func() bool
	// events, networks, services, gateways and agreement are sent when the daemon's state may have changed.
	// Each has one reader.
	events, networks, services, gateways, agreement alarm.Signal

	mu     sync.Mutex
	timer  *time.Timer
	active int
	// begun counts all requests.
	begun uint64
}

func newIdle(exits bool) *idle {
	i := &idle{over: make(chan struct{}), events: alarm.NewSignal(), networks: alarm.NewSignal(),
		services: alarm.NewSignal(), gateways: alarm.NewSignal(), agreement: alarm.NewSignal()}
	if exits {
		i.timer = time.AfterFunc(time.Hour, i.expire) // touch sets the time
	}
	return i
}

// touch restarts the waiting time.
func (i *idle) touch() {
	for _, reader := range []alarm.Signal{i.events, i.networks, i.services, i.gateways, i.agreement} {
		reader.Send()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.timer != nil {
		i.timer.Reset(IdleGrace)
	}
}

// expire closes over if no request is running and the daemon is empty.
func (i *idle) expire() {
	busy, before := i.requests()
	if busy || !i.empty() {
		return // the next change or the end of the request calls touch
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.begun != before {
		return // the request may have changed what empty has found, and calls touch at its end
	}
	select {
	case <-i.over:
	default:
		close(i.over)
	}
}

// requests reports whether a request is running, and returns how many have begun.
func (i *idle) requests() (busy bool, begun uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.active > 0, i.begun
}

// handler counts the requests that are running.
func (i *idle) handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.begin()
		defer i.touch()
		defer i.end()
		h.ServeHTTP(w, r)
	})
}

func (i *idle) begin() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.active++
	i.begun++
}

func (i *idle) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.active--
}
