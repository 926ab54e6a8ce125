package traefik

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"fairlead/internal/model/gateway"
)

// Merger joins the configurations of several sources, such as files, whose names are qualified. The source that
// is added first has precedence. Merger changes no value of a source.
type Merger struct {
	Config   gateway.Config
	Problems []Problem
	// Article precedes the name of a source in a text, and Remedy says what to do about an object that two sources
	// define.
	Article, Remedy string
	// owners are the sources of the objects, by kind and name.
	owners map[string]string
}

// Add adds the configuration of a source.
func (m *Merger) Add(source string, config gateway.Config) {
	before := len(m.Problems)
	have := m.Config.Objects()
	for i, all := range config.Objects() {
		for name, value := range all.All() {
			m.merge(source, have[i], name, value)
		}
	}
	m.Config.TLS.Certificates = append(m.Config.TLS.Certificates, config.TLS.Certificates...)
	m.Config.Renamed = append(m.Config.Renamed, config.Renamed...)
	slices.SortFunc(m.Problems[before:], func(a, b Problem) int { return strings.Compare(a.Object, b.Object) })
}

// merge adds an object of a source.
func (m *Merger) merge(source string, to gateway.Objects, name string, value any) {
	object := to.Kind() + " " + name
	switch have := to.Get(name); {
	case have == nil:
		if m.owners == nil {
			m.owners = map[string]string{}
		}
		to.Put(name, value)
		m.owners[object] = source
	case !reflect.DeepEqual(have, value):
		m.Problems = append(m.Problems, Problem{Object: object, Source: source, Warning: true,
			Text: fmt.Sprintf("it is already defined with other settings by %s%s, whose definition stays: %s", m.Article,
				m.owners[object], m.Remedy)})
	}
}
