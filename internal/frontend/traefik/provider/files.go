package provider

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"fairlead/internal/frontend/traefik"
	"fairlead/internal/model/gateway"
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

// Follow calls changed with the configuration in the files now and after each change,
// until the context ends. Files are read after their directories are watched, so that no change
// is missed.
func (f *Files) Follow(ctx context.Context, changed Changed) {
	read := func() { changed(traefik.Files([]string{f.path()})) }
	if f.value.Watch != nil && !*f.value.Watch {
		read()
		return
	}
	w, err := NewWatcher(f.log)
	if err != nil {
		f.log.Warn("cannot watch files: their changes need a restart", "error", err)
		read()
		return
	}
	defer w.Close()
	f.watch(w)
	read()
	w.Follow(ctx, func() {
		f.watch(w)
		read()
	})
}

// watch watches the directories, and those that somebody made in them meanwhile.
func (f *Files) watch(w *Watcher) {
	var watched []string
	for all := f.directories(); !slices.Equal(all, watched); all = f.directories() {
		w.Set(all)
		watched = all
	}
}

// directories returns the directories of the files.
func (f *Files) directories() (all []string) {
	if f.value.Directory == "" {
		return []string{filepath.Dir(f.value.Filename)}
	}
	err := filepath.WalkDir(f.value.Directory, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		f.log.Warn("cannot read a directory", "directory", f.value.Directory, "error", err)
	}
	return all
}
