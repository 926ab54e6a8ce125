package provider

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"fairlead/internal/frontend/traefik"
	"fairlead/internal/model/gateway"

	"github.com/fsnotify/fsnotify"
)

// Files follows the files of the file provider.
type Files struct {
	value gateway.File
	log   *slog.Logger
}

// NewFiles returns a provider for the file, or the files of the directory.
func NewFiles(value gateway.File, log *slog.Logger) (*Files, error) {
	f := &Files{value, log}
	if _, err := os.Stat(f.path()); err != nil {
		return nil, fmt.Errorf("file provider: %w", err)
	}
	return f, nil
}

// path is the file or directory that the provider reads.
func (f *Files) path() string { return cmp.Or(f.value.Directory, f.value.Filename) }

// settle is how long files must stay the same: editors write them in several steps.
const settle = 100 * time.Millisecond

// Follow calls changed with the configuration in the files now and after each change,
// until the context ends.
func (f *Files) Follow(ctx context.Context, changed Changed) {
	changed(traefik.Files([]string{f.path()}))
	if f.value.Watch != nil && !*f.value.Watch {
		return
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		f.log.Warn("cannot watch files: their changes need a restart", "error", err)
		return
	}
	defer w.Close()
	f.watch(w)
	timer := time.NewTimer(settle)
	timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.Events:
			timer.Reset(settle)
		case err := <-w.Errors:
			f.log.Warn("watching files", "error", err)
			timer.Reset(settle)
		case <-timer.C:
			f.watch(w)
			changed(traefik.Files([]string{f.path()}))
		}
	}
}

// watch watches the directories of the files: a file that is replaced by another is
// not the watched one any more.
func (f *Files) watch(w *fsnotify.Watcher) {
	add := func(dir string) {
		if slices.Contains(w.WatchList(), dir) {
			return
		}
		if err := w.Add(dir); err != nil {
			f.log.Warn("cannot watch a directory", "directory", dir, "error", err)
		}
	}
	if f.value.Directory == "" {
		add(filepath.Dir(f.value.Filename))
		return
	}
	err := filepath.WalkDir(f.value.Directory, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			add(path)
		}
		return err
	})
	if err != nil {
		f.log.Warn("cannot read a directory", "directory", f.value.Directory, "error", err)
	}
}
