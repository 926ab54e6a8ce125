package provider

import (
	"context"
	"log/slog"
	"maps"
	"os"
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
	log *slog.Logger
	// notify is nil if nothing can be watched.
	notify *fsnotify.Watcher
	// watched are the directories that are watched, as they were then: the name of one may
	// belong to another one now. failed are those that cannot be watched, and why.
	watched map[string]os.FileInfo
	failed  map[string]string
}

// NewWatcher returns a watcher that watches nothing yet. The caller closes it.
func NewWatcher(log *slog.Logger) (*Watcher, error) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return &Watcher{log: log, notify: notify, watched: map[string]os.FileInfo{}}, nil
}

// Close ends the watcher.
func (w *Watcher) Close() error {
	if w.notify == nil {
		return nil
	}
	return w.notify.Close()
}

// Set makes the watcher watch these directories and no others. It logs why it cannot watch one, once
// for each reason.
func (w *Watcher) Set(directories []string) {
	if w.notify == nil {
		return
	}
	list := w.notify.WatchList()
	maps.DeleteFunc(w.watched, func(at string, _ os.FileInfo) bool { return !slices.Contains(list, at) })
	for at, was := range w.watched {
		if now, err := os.Stat(at); err != nil || !os.SameFile(was, now) || !slices.Contains(directories, at) {
			_ = w.notify.Remove(at) // it may be deleted
			delete(w.watched, at)
		}
	}
	failed := map[string]string{}
	for _, at := range directories {
		if err := w.add(at); err != nil {
			if failed[at] = err.Error(); failed[at] != w.failed[at] {
				w.log.Warn("cannot watch a directory", "directory", at, "error", err)
			}
		}
	}
	w.failed = failed
}

// add watches a directory. If its name belongs to another one meanwhile, the next call of Set
// finds that out.
func (w *Watcher) add(at string) error {
	if w.watched[at] != nil {
		return nil
	}
	info, err := os.Stat(at)
	if err == nil {
		err = w.notify.Add(at)
	}
	if err == nil {
		w.watched[at] = info
	}
	return err
}

// complete reports whether all directories are watched.
func (w *Watcher) complete() bool { return w.notify != nil && len(w.failed) == 0 }

// Follow calls changed after changes in the directories, until the context ends.
func (w *Watcher) Follow(ctx context.Context, changed func()) {
	for w.wait(ctx, 0) {
		changed()
	}
}

// wait returns after changes in the directories, or after the limit; 0 means that there is none. It
// returns false when the context has ended.
func (w *Watcher) wait(ctx context.Context, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	if limit == 0 {
		timer.Stop()
	}
	var events chan fsnotify.Event
	var errors chan error
	if w.notify != nil {
		events, errors = w.notify.Events, w.notify.Errors
	}
	var first time.Time // the first change, zero if there is none
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-events:
		case err := <-errors:
			w.log.Warn("watching files", "error", err)
		}
		if first.IsZero() {
			first = time.Now()
		}
		timer.Reset(min(settle, time.Until(first.Add(latest))))
	}
}
