package service

import (
	"net/http"
	"sync"
	"time"
)

// idle tells when a daemon has nothing left to do.
type idle struct {
	// over is closed then; never, if the daemon does not end by itself.
	over  chan struct{}
	empty func() bool
	// events holds a value when the daemon may hold something else than before.
	events chan struct{}

	mu     sync.Mutex
	timer  *time.Timer
	active int
}

func newIdle(exits bool) *idle {
	i := &idle{over: make(chan struct{}), events: make(chan struct{}, 1)}
	if exits {
		i.timer = time.AfterFunc(time.Hour, i.expire) // touch sets the time
	}
	return i
}

// touch begins the wait anew.
func (i *idle) touch() {
	select {
	case i.events <- struct{}{}:
	default: // it holds one
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.timer != nil {
		i.timer.Reset(IdleGrace)
	}
}

// expire ends the daemon if nothing is under way and nothing is held.
func (i *idle) expire() {
	i.mu.Lock()
	busy := i.active > 0
	i.mu.Unlock()
	if busy || !i.empty() {
		return // the next change or the end of the request touches it
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	select {
	case <-i.over:
	default:
		close(i.over)
	}
}

// handler counts the requests that are under way.
func (i *idle) handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.count(1)
		defer i.touch()
		defer i.count(-1)
		h.ServeHTTP(w, r)
	})
}

func (i *idle) count(n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.active += n
}
