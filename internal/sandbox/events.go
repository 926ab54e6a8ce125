package sandbox

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/sys/unix"
)

// containerEvents asks an engine for what changes where containers are found;
// "died" is podman's word.
var containerEvents = "/events?filters=" + url.QueryEscape(`{"type":["container"],"event":["start","die","died","rename"]}`)

// The pauses between attempts to reach an engine. A socket is seen before it
// is listened at, so one that answers nobody is tried for a moment; longer
// only an engine that is there and refuses.
const (
	firstPause  = 10 * time.Millisecond
	settled     = 5 * time.Second
	longestWait = time.Minute
)

// listen follows an engine until ctx ends, and waits while there is none.
func (w *watcher) listen(ctx context.Context, e *engine) {
	pause := firstPause
	for ctx.Err() == nil {
		begin := time.Now()
		connected, err := w.follow(ctx, e.socket)
		if connected {
			w.tick() // an engine that ends may take its containers along
		}
		if time.Since(begin) > settled {
			pause = firstPause
		}
		var after <-chan time.Time
		if retryable(err) || pause < settled {
			after = time.After(pause)
			pause = min(2*pause, longestWait)
		}
		select {
		case <-ctx.Done():
		case <-after:
		case <-e.came:
			pause = firstPause
		}
	}
}

// retryable reports whether an engine may answer later without its socket
// being made anew.
func retryable(err error) bool {
	return err != nil && !notThere(err) && !errors.Is(err, unix.EACCES)
}

// follow ticks once when the engine answers and again with all it tells, until
// it ends.
func (w *watcher) follow(ctx context.Context, socket string) (connected bool, err error) {
	answer, err := get(ctx, socket, containerEvents)
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return false, refusal(answer)
	}
	w.tick()
	for buf := make([]byte, 4096); ; {
		n, err := answer.Body.Read(buf)
		if n > 0 {
			w.tick()
		}
		if err != nil {
			return true, err
		}
	}
}
