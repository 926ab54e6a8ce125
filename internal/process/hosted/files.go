package hosted

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"fairlead/internal/frontend/traefik"
	values "fairlead/internal/model/gateway"
)

// filesEvery is how often the files that the configuration names are looked at: other
// programs renew certificates.
const filesEvery = 5 * time.Second

// fileState is what shows that a file has changed. It is zero if there is no such file.
type fileState struct {
	changed time.Time
	size    int64
}

// Follow applies the configuration again when a file has changed that it names, until ctx
// ends.
func (r *Runner) Follow(ctx context.Context) {
	tick := time.NewTicker(filesEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.checkFiles(ctx)
		}
	}
}

func (r *Runner) checkFiles(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
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

// filesOf returns the files of certificates and users that a configuration names, with their
// states.
func filesOf(c values.Config) map[string]fileState {
	files := map[string]fileState{}
	add := func(paths ...string) {
		for _, path := range paths {
			if path != "" && !strings.Contains(path, "-----BEGIN") {
				files[path] = stateOf(path)
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
		add(usersFile(m))
	}
	return files
}

func usersFile(m *values.Middleware) string {
	switch {
	case m.BasicAuth != nil:
		return m.BasicAuth.UsersFile
	case m.DigestAuth != nil:
		return m.DigestAuth.UsersFile
	}
	return ""
}

func stateOf(path string) fileState {
	info, err := os.Stat(path)
	if err != nil {
		return fileState{}
	}
	return fileState{info.ModTime(), info.Size()}
}

// withoutFiles removes the middlewares of containers that name files: the daemon would read
// these files of the host as root for whoever may set labels.
func withoutFiles(c *values.Config, problems []traefik.Problem) []traefik.Problem {
	kept := map[string]*values.Middleware{}
	for name, m := range c.HTTP.Middlewares {
		file := usersFile(m)
		if f := m.ForwardAuth; f != nil && f.TLS != nil {
			file = strings.Join([]string{f.TLS.CA, f.TLS.Cert, f.TLS.Key}, "")
		}
		if file == "" {
			kept[name] = m
			continue
		}
		problems = append(problems, traefik.Problem{Object: "middleware " + name, Source: "labels",
			Text: "labels must not name files of the host: declare the middleware in fairlead.yaml"})
	}
	c.HTTP.Middlewares = kept
	return problems
}
