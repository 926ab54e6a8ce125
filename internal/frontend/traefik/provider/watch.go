package provider

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long files must stay the same: editors write them in several steps.
	settle = 100 * time.Millisecond
	// latest is the longest time from a change to its report, while other changes follow.
	latest = 10 * settle
)

// Watcher reports changes of files (inotify). It watches directories: a file that is replaced
// by another is not the watched one any more.
type Watcher struct {
	log    *slog.Logger
	notify *fsnotify.Watcher
}

// NewWatcher returns a watcher that watches nothing yet. The caller closes it.
func NewWatcher(log *slog.Logger) (*Watcher, error) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return &Watcher{log, notify}, nil
}

// Close ends the watcher.
func (w *Watcher) Close() error { return w.notify.Close() }

// Set makes the watcher watch these directories and no others.
func (w *Watcher) Set(directories []string) {
	watched := w.notify.WatchList()
	for _, at := range watched {
		if !slices.Contains(directories, at) {
			_ = w.notify.Remove(at) // it may be deleted
		}
	}
	for _, at := range directories {
		if slices.Contains(watched, at) {
			continue
		}
		if err := w.notify.Add(at); err != nil {
			w.log.Warn("cannot watch a directory", "directory", at, "error", err)
		}
	}
}

// Follow calls changed after changes in the directories, until the context ends.
func (w *Watcher) Follow(ctx context.Context, changed func()) {
	timer := time.NewTimer(settle)
	timer.Stop()
	var first time.Time // the first change that was not reported, zero if there is none
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.notify.Events:
		case err := <-w.notify.Errors:
			w.log.Warn("watching files", "error", err)
		case <-timer.C:
			first = time.Time{}
			changed()
			continue
		}
		if first.IsZero() {
			first = time.Now()
		}
		timer.Reset(min(settle, time.Until(first.Add(latest))))
	}
}
