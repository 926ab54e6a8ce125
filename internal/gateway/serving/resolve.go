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
	c.TLS.Options = resolved(r, "tls options", c.TLS.Options, options)
	c.TLS.Stores = resolved(r, "tls store", c.TLS.Stores, r.store)
	c.HTTP.Middlewares = resolved(r, "middleware", c.HTTP.Middlewares, middleware)
	c.HTTP.ServersTransports = resolved(r, "transport", c.HTTP.ServersTransports, transport)
	c.TCP.ServersTransports = resolved(r, "tcp transport", c.TCP.ServersTransports, tcpTransport)
	return &c, r.known
}

// Seclude returns the static settings without what only the controlling process needs, and
// with the contents of files.
func Seclude(static model.Static) (model.Static, error) {
	static.Docker, static.Swarm, static.File, static.Resolvers = nil, nil, nil, nil
	var f files
	transport(&f, &static.Transport)
	tcpTransport(&f, &static.TCPTransport)
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

// texts replaces the names of files in a copy of the list.
func (f *files) texts(values *[]string) {
	*values = slices.Clone(*values)
	for i := range *values {
		f.text(&(*values)[i])
	}
}

func (f *files) pair(c *model.Certificate) {
	f.text(&c.CertFile)
	f.text(&c.KeyFile)
}

func (f *files) pairs(all *[]model.Certificate) {
	*all = slices.Clone(*all)
	for i := range *all {
		f.pair(&(*all)[i])
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
		f.err = errors.Join(recovery.Object("certificate "+name, func() { f.pair(&c) }), f.err)
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

func options(f *files, o *model.TLSOptions) { f.texts(&o.ClientAuth.CAFiles) }

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

func transport(f *files, t *model.ServersTransport) {
	f.texts(&t.RootCAs)
	f.pairs(&t.Certificates)
}

func tcpTransport(f *files, t *model.TCPServersTransport) {
	if t.TLS != nil {
		c := *t.TLS
		f.texts(&c.RootCAs)
		f.pairs(&c.Certificates)
		t.TLS = &c
	}
}

func middleware(f *files, m *model.Middleware) {
	if a := m.BasicAuth; a != nil && a.UsersFile != "" {
		c := *a
		f.users(&c.UsersFile, &c.Users)
		m.BasicAuth = &c
	}
	if a := m.DigestAuth; a != nil && a.UsersFile != "" {
		c := *a
		f.users(&c.UsersFile, &c.Users)
		m.DigestAuth = &c
	}
	if a := m.ForwardAuth; a != nil && a.TLS != nil {
		c, t := *a, *a.TLS
		f.text(&t.CA)
		f.text(&t.Cert)
		f.text(&t.Key)
		c.TLS = &t
		m.ForwardAuth = &c
	}
}

// users puts the lines of the file before the users, which replace them.
func (f *files) users(file *string, users *[]string) {
	content, err := os.ReadFile(*file)
	if err != nil {
		f.err = fmt.Errorf("read users: %w", err)
		return
	}
	f.read = true
	*users, *file = append(strings.Split(string(content), "\n"), *users...), ""
}
