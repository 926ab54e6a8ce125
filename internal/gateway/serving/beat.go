package serving

import (
	"time"

	"fairlead/internal/gateway/goroutine"
)

// beatEvery is the interval in which the serving process reports progress.
const beatEvery = answerLimit / 6

// beats sends responses with Busy while a request is carried out, until the returned function is called. A request
// that makes no progress has none, so that a controlling process does not wait for it for ever.
func (s *server) beats(l *link, r request) (stop func()) {
	if !r.Beats {
		return func() {}
	}
	ticker := time.NewTicker(beatEvery)
	ended, done := make(chan struct{}), make(chan struct{})
	goroutine.Go("report progress", func() {
		defer close(done)
		beat(ticker.C, ended, s.progress, func() error { return l.send(response{ID: r.ID, Busy: true}, nil) })
	})
	return func() {
		ticker.Stop()
		close(ended)
		<-done
	}
}

// beat calls send at each tick at which the progress has grown, until it ends or send fails.
func beat(ticks <-chan time.Time, ended <-chan struct{}, progress func() uint64, send func() error) {
	last := progress()
	for {
		select {
		case <-ended:
			return
		case <-ticks:
		}
		if now := progress(); now != last {
			if last = now; send() != nil {
				return // the answer fails, too
			}
		}
	}
}

// progress returns that of the gateway, 0 if it is not made yet.
func (s *server) progress() uint64 {
	if g := s.made.Load(); g != nil {
		return g.Progress()
	}
	return 0
}
