package serving

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"fairlead/internal/gateway/status"
	model "fairlead/internal/model/gateway"
	"fairlead/internal/recovery"
)

// Resolve returns the configuration with the contents of the files that it names, and the
// status of each object whose file cannot be read, so that the serving process needs no
// file. It does not alter config.
func Resolve(config *model.Config, known []status.Status) (*model.Config, []status.Status) {
	r := &resolver{known: slices.Clone(known)}
	c := *config
	c.TLS.Certificates = r.certificates(c.TLS.Certificates)
	c.TLS.Options = resolved(r, "tls options", c.TLS.Options, fill[model.TLSOptions])
	c.TLS.Stores = resolved(r, "tls store", c.TLS.Stores, r.store)
	c.HTTP.Middlewares = resolved(r, "middleware", c.HTTP.Middlewares, middleware)
	c.HTTP.ServersTransports = resolved(r, "transport", c.HTTP.ServersTransports, fill[model.ServersTransport])
	c.TCP.ServersTransports = resolved(r, "tcp transport", c.TCP.ServersTransports, fill[model.TCPServersTransport])
	return &c, r.known
}

// Seclude returns the static settings without what only the controlling process needs, and
// with the contents of files.
func Seclude(static model.Static) (model.Static, error) {
	static.Providers, static.Resolvers = model.Providers{}, nil
	var f files
	fill(&f, &static.Transport)
	fill(&f, &static.TCPTransport)
	return static, f.err
}

// files reads the files of one object.
type files struct {
	read bool
	err  error
}

// text replaces the name of a file by its content.
func (f *files) text(value *string) {
	if *value == "" || strings.Contains(*value, "-----BEGIN") {
		return
	}
	content, err := os.ReadFile(*value)
	if err != nil {
		f.err = errors.Join(f.err, err)
		return
	}
	f.read, *value = true, string(content)
}

// lines puts the lines of the file before the other ones, and replaces its name by "".
func (f *files) lines(file *string, others *[]string) {
	if *file == "" {
		return
	}
	content, err := os.ReadFile(*file)
	if err != nil {
		f.err = errors.Join(f.err, fmt.Errorf("read users: %w", err))
		return
	}
	f.read = true
	*others, *file = append(strings.Split(string(content), "\n"), *others...), ""
}

// fill reads all files that a value of the model names. It alters only what v points to itself.
func fill[T any](f *files, v *T) {
	if len(model.Files(v)) == 0 {
		return
	}
	*v = *model.Clone(v)
	model.Texts(v, "file", func(t model.Text) {
		if t.Tag == "lines" {
			f.lines(t.Value, t.In.FieldByName(strings.TrimSuffix(t.Field, "File")).Addr().Interface().(*[]string))
		} else {
			f.text(t.Value)
		}
	})
}

// middleware reads the files of a middleware, unless it is refused anyway.
func middleware(f *files, m *model.Middleware) {
	if l := m.RateLimit; l == nil || l.Redis == nil {
		fill(f, m)
	}
}

// resolver gathers what cannot be read.
type resolver struct {
	known []status.Status
}

func (r *resolver) disable(kind, name string, err error) {
	r.known = append(r.known, status.Status{Kind: kind, Name: name, State: status.Disabled,
		Reasons: []string{err.Error()}})
}

// certificates leaves out those that cannot be read.
func (r *resolver) certificates(all []model.Certificate) (result []model.Certificate) {
	for _, c := range all {
		var f files
		name := c.CertFile
		// What is read goes to a copy, which is dropped.
		f.err = errors.Join(recovery.Object("certificate "+name, func() { fill(&f, &c) }), f.err)
		if f.err != nil {
			r.disable("certificate", name, f.err)
			continue
		}
		result = append(result, c)
	}
	return result
}

// resolved reads the files of the objects of a map. An object without files stays the same
// one, and so does one whose file cannot be read.
func resolved[T any](r *resolver, kind string, all map[string]*T, read func(*files, *T)) map[string]*T {
	result, own := all, false
	for name, value := range all {
		if value == nil {
			continue
		}
		var f files
		copied := *value
		f.err = errors.Join(recovery.Object(kind+" "+name, func() { read(&f, &copied) }), f.err)
		if f.err != nil {
			r.disable(kind, name, f.err)
			continue
		}
		if !f.read {
			continue
		}
		if !own {
			result, own = maps.Clone(all), true
		}
		result[name] = &copied
	}
	return result
}

// store leaves out a default certificate that cannot be read.
func (r *resolver) store(f *files, s *model.Store) {
	if s.DefaultCertificate == nil {
		return
	}
	f.read = true
	pair := r.certificates([]model.Certificate{*s.DefaultCertificate})
	if s.DefaultCertificate = nil; len(pair) > 0 {
		s.DefaultCertificate = &pair[0]
	}
}
