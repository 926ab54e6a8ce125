package sandbox

import (
	"context"
	"errors"
	"time"

	"fairlead/internal/dockerapi"

	"golang.org/x/sys/unix"
)

// containerEvents is the filter of the events after which a container may be found under
// another name or process. "died" is podman's name for "die".
var containerEvents = dockerapi.Filter{"type": {"container"}, "event": {"start", "die", "died", "rename"}}

// The pauses between attempts to reach an engine. inotify reports a socket before
// the engine listens on it, so any error is retried for a short time. Later only
// an engine that runs but refuses the request is retried.
const (
	firstPause  = 10 * time.Millisecond
	settled     = 5 * time.Second
	longestWait = time.Minute
)

// listen follows an engine's events until ctx ends. If no engine runs, it waits.
func (w *watcher) listen(ctx context.Context, e *engine) {
	pause := firstPause
	for ctx.Err() == nil {
		begin := time.Now()
		connected, err := w.follow(ctx, e.socket)
		if connected {
			w.tick() // its containers may have ended with the engine
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
		case <-e.appeared:
			pause = firstPause
		}
	}
}

// retryable reports whether an engine may answer later although its socket stays
// the same.
func retryable(err error) bool {
	return err != nil && !dockerapi.NotRunning(err) && !errors.Is(err, unix.EACCES)
}

// follow sends a tick when the engine answers and for each event, until the
// engine ends. connected reports whether the engine answered.
func (w *watcher) follow(ctx context.Context, socket string) (connected bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := dockerapi.Subscription{Engine: dockerapi.Unix(socket), Filter: containerEvents,
		Since: dockerapi.ThisSecond(), Patient: true}
	stream, err := events.Open(ctx)
	if err != nil {
		return false, err
	}
	w.tick()
	for range stream.Events {
		w.tick()
	}
	return true, stream.Err()
}
