package provider

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"fairlead/internal/frontend/traefik"
	"fairlead/internal/model/gateway"
)

// Files follows the files of the file provider.
type Files struct {
	value gateway.File
	log   *slog.Logger
}

// NewFile returns a provider for the file, or the files of the directory. Its error is nil.
func NewFile(value gateway.File, log *slog.Logger) (Provider, error) { return &Files{value, log}, nil }

// The longest times between two reads. Changes of network file systems, and renames of the directories
// above those of the files, are not reported.
const (
	rereadWatched   = time.Minute
	rereadUnwatched = 5 * time.Second
)

// Follow calls changed with the configuration in the files now and after each change,
// until the context ends. Files are read after their directories are watched, so that no change
// is missed.
func (f *Files) Follow(ctx context.Context, changed Changed) {
	set := traefik.NewFileSet(cmp.Or(f.value.Directory, f.value.Filename))
	if f.value.Watch != nil && !*f.value.Watch {
		r := set.Read(time.Now())
		changed(r.Config, r.Problems)
		return
	}
	w, err := NewWatcher(f.log)
	if err != nil {
		f.log.Warn("cannot watch files: they are read every few seconds", "interval", rereadUnwatched, "error", err)
		w = &Watcher{log: f.log}
	}
	defer w.Close()
	for {
		watch(w, set)
		r := set.Read(time.Now())
		if r.Changed {
			changed(r.Config, r.Problems)
		}
		wait := rereadWatched
		if !w.complete() {
			wait = rereadUnwatched
		}
		if r.Again > 0 {
			wait = min(wait, r.Again)
		}
		if !w.wait(ctx, wait) {
			return
		}
	}
}

// watch watches the directories of the files, and those that somebody makes in them meanwhile.
func watch(w *Watcher, set *traefik.FileSet) {
	var watched []string
	for all := set.Directories(); !slices.Equal(all, watched); all = set.Directories() {
		w.Set(all)
		watched = all
	}
}
