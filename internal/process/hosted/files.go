package hosted

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fairlead/internal/frontend/traefik/provider"
	values "fairlead/internal/model/gateway"
)

// fileState is what shows that a file has changed. It is zero if there is no such file.
type fileState struct {
	changed time.Time
	size    int64
}

// Follow applies the configuration again when a file has changed that it names, until ctx
// ends: other programs renew certificates.
func (r *Runner) Follow(ctx context.Context) {
	w, err := provider.NewWatcher(r.log)
	if err != nil {
		r.log.Warn("cannot watch the gateway's files: their changes need an apply", "error", err)
		return
	}
	defer w.Close()
	r.watchWith(w)
	defer r.watchWith(nil)
	r.checkFiles(ctx) // what has changed before
	w.Follow(ctx, func() { r.checkFiles(ctx) })
}

// watchWith sets the watcher of the files.
func (r *Runner) watchWith(w *provider.Watcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watcher = w
	r.watchFiles()
}

// setFiles sets the files of the configuration that is put to use. They are watched before
// their states are read, so that no change is missed.
func (r *Runner) setFiles(paths []string) {
	r.files = map[string]fileState{}
	for _, path := range paths {
		r.files[path] = fileState{}
	}
	r.watchFiles()
	for _, path := range paths {
		r.files[path] = stateOf(path)
	}
}

// watchFiles watches the files of the configuration that is in use.
func (r *Runner) watchFiles() {
	if r.watcher != nil {
		r.watcher.Set(directoriesOf(slices.Collect(maps.Keys(r.files))))
	}
}

// directoriesOf returns the directories where the files can change: those of the names, and of
// what they link to. In place of a directory that does not exist, it is the one above.
func directoriesOf(paths []string) (all []string) {
	for _, path := range paths {
		if to, err := filepath.EvalSymlinks(path); err == nil {
			all = append(all, filepath.Dir(to))
		}
		at := filepath.Dir(path)
		for at != filepath.Dir(at) {
			if info, err := os.Stat(at); err == nil && info.IsDir() {
				break
			}
			at = filepath.Dir(at)
		}
		all = append(all, at)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (r *Runner) checkFiles(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchFiles() // a directory may exist now
	changed := slices.ContainsFunc(slices.Collect(maps.Keys(r.files)), func(path string) bool {
		return stateOf(path) != r.files[path]
	})
	if r.controller == nil || !changed {
		return
	}
	r.log.Info("a file of the gateway has changed: it is read again")
	if err := r.apply(ctx, r.static); err != nil {
		r.log.Error("read the files of the gateway", "error", err)
	}
}

// filesOf returns the files of certificates and users that a configuration names.
func filesOf(c values.Config) (files []string) {
	add := func(paths ...string) {
		for _, path := range paths {
			if path != "" && !strings.Contains(path, "-----BEGIN") {
				files = append(files, path)
			}
		}
	}
	for _, cert := range c.TLS.Certificates {
		add(cert.CertFile, cert.KeyFile)
	}
	for _, s := range c.TLS.Stores {
		if s.DefaultCertificate != nil {
			add(s.DefaultCertificate.CertFile, s.DefaultCertificate.KeyFile)
		}
	}
	for _, m := range c.HTTP.Middlewares {
		values.Texts(m, "file", func(t values.Text) {
			if t.Tag == "lines" {
				add(*t.Value)
			}
		})
	}
	return files
}

func stateOf(path string) fileState {
	info, err := os.Stat(path)
	if err != nil {
		return fileState{}
	}
	return fileState{info.ModTime(), info.Size()}
}
