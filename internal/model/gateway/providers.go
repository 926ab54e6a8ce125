package gateway

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Providers are the settings of the providers of routers, nil for one that is off. The name of a provider is that of
// its field in lower case.
type Providers struct {
	Docker *Docker
	// Swarm, if not nil, is the provider of routers from labels of a swarm's services. Its
	// SwarmMode is true.
	Swarm *Docker
	File  *File
}

// All returns the settings of all providers by the names of their fields: pointers, nil for a provider that is off.
func (p Providers) All() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for field, v := range reflect.ValueOf(p).Fields() {
			var settings any
			if !v.IsNil() {
				settings = v.Interface()
			}
			if !yield(field.Name, settings) {
				return
			}
		}
	}
}

// Any reports whether a provider is on.
func (p Providers) Any() bool { return p != Providers{} }

// Remark is about a setting of a provider. Key is the setting, below the provider's name. A mistake makes the settings
// invalid; what else is remarked has no effect, or another one than in Traefik.
type Remark struct {
	Key, Text string
	Mistake   bool
}

// Complete calls the method Complete of all settings that have one: it sets what follows from the provider's name,
// switches off providers without anything to read, and returns remarks.
func (p *Providers) Complete() (remarks []Remark) {
	for name, settings := range p.All() {
		c, ok := settings.(interface {
			Complete(provider string) (on bool, remarks []Remark)
		})
		if !ok {
			continue
		}
		provider := strings.ToLower(name)
		on, found := c.Complete(provider)
		if !on {
			reflect.ValueOf(p).Elem().FieldByName(name).SetZero()
		}
		for _, r := range found {
			r.Key = strings.TrimSuffix(provider+"."+r.Key, ".")
			remarks = append(remarks, r)
		}
	}
	return remarks
}

// Unused returns the settings that are valid and have no effect yet: what the methods Unused of the settings return.
func (p Providers) Unused() (all []string) {
	for name, settings := range p.All() {
		if u, ok := settings.(interface{ Unused() []string }); ok {
			for _, setting := range u.Unused() {
				all = append(all, strings.ToLower(name)+"."+setting)
			}
		}
	}
	return all
}

// ProviderNames returns the names of all providers.
func ProviderNames() (names []string) {
	for name := range (Providers{}).All() {
		names = append(names, strings.ToLower(name))
	}
	return names
}

// Docker is the provider of routers from labels of containers.
type Docker struct {
	// Endpoint is unix:///var/run/docker.sock by default.
	Endpoint string `secret:"url"`
	TLS      *ClientTLS
	// ExposedByDefault: nil means true.
	ExposedByDefault *bool
	Network          string
	DefaultRule      string
	Constraints      string
	UseBindPortIP    bool
	SwarmMode        bool
	// RefreshSeconds is the time between two questions for the tasks of a swarm. 0 means the default.
	//lint:ignore ST1011 the key is Traefik's
	RefreshSeconds time.Duration
	// SwarmModeRefreshSeconds is RefreshSeconds in v2.
	//lint:ignore ST1011 the key is Traefik's
	SwarmModeRefreshSeconds time.Duration
	Watch                   *bool
	AllowEmptyServices      bool
	// Username and Password are for an endpoint with HTTP authentication.
	Username string
	Password string `secret:"whole"`
	// HTTPClientTimeout limits a request to the endpoint. 0 means no limit.
	HTTPClientTimeout time.Duration
	// Strict drops all routers of a container with a faulty label, as Traefik does.
	Strict bool
	// LabelFiles are the absolute paths of the files that labels may name. Empty means none.
	LabelFiles []string
	// LabelScope is LabelScopeEngine, the default, or LabelScopeProject, which keeps references
	// and servers of containers in their project.
	LabelScope string
}

// Complete sets the mode of the provider swarm, and checks the scope of labels; see Providers.Complete.
func (d *Docker) Complete(provider string) (on bool, remarks []Remark) {
	if s := d.LabelScope; s != "" && !slices.Contains(LabelScopes(), s) {
		remarks = append(remarks, Remark{"labelScope", fmt.Sprintf("value %q: want %s", s,
			strings.Join(LabelScopes(), " or ")), true})
	}
	switch {
	case provider == "swarm":
		d.SwarmMode = true
	case d.SwarmMode:
		remarks = append(remarks, Remark{Key: "swarmMode",
			Text: "is in effect, but v2's name: v3 has providers.swarm instead"})
	}
	return true, remarks
}

// Unused returns the settings that have no effect yet.
func (d *Docker) Unused() (all []string) {
	if d.Watch != nil && !*d.Watch {
		all = append(all, "watch=false")
	}
	if d.Username != "" || d.Password != "" {
		all = append(all, "username or password")
	}
	if d.HTTPClientTimeout > 0 {
		all = append(all, "httpClientTimeout")
	}
	return all
}

// The values of Docker.LabelScope.
const (
	LabelScopeEngine  = "engine"
	LabelScopeProject = "project"
)

// LabelScopes returns the values of Docker.LabelScope.
func LabelScopes() []string { return []string{LabelScopeEngine, LabelScopeProject} }

// File is the provider of routers from files: one file, or the files of a directory.
type File struct {
	Filename, Directory string
	// Watch: nil means true.
	Watch *bool
}

// Complete makes the directory exclude the file; see Providers.Complete.
func (f *File) Complete(string) (on bool, remarks []Remark) {
	switch {
	case f.Filename == "" && f.Directory == "":
		return false, []Remark{{Text: "has no effect without a file: set filename or directory"}}
	case f.Filename != "" && f.Directory != "":
		f.Filename = ""
		return true, []Remark{{Key: "filename", Text: "has no effect: directory is set too"}}
	}
	return true, nil
}
