package traefik

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"fairlead/internal/model/gateway"
)

// provided is a file, and its part of the configuration.
type provided struct {
	name   string
	config *gateway.Config
}

// merger joins the configurations of the files of a provider, whose names are qualified. The file that is
// added first has precedence. Merger changes no value of a file.
type merger struct {
	config   gateway.Config
	sources  []provided
	problems []Problem
}

// add adds the configuration of a source.
func (m *merger) add(s provided) {
	m.sources = append(m.sources, s)
	before := len(m.problems)
	have := m.config.Objects()
	for i, all := range s.config.Objects() {
		for name, value := range all.All() {
			m.merge(i, have[i], name, value)
		}
	}
	m.config.TLS.Certificates = append(m.config.TLS.Certificates, s.config.TLS.Certificates...)
	slices.SortFunc(m.problems[before:], func(a, b Problem) int { return strings.Compare(a.Object, b.Object) })
}

// merge adds an object of the last source. kind is the index of its kind.
func (m *merger) merge(kind int, to gateway.Objects, name string, value any) {
	switch have := to.Get(name); {
	case have == nil:
		to.Put(name, value)
	case !reflect.DeepEqual(have, value):
		first := slices.IndexFunc(m.sources, func(s provided) bool { return s.config.Objects()[kind].Get(name) != nil })
		last := m.sources[len(m.sources)-1]
		m.problems = append(m.problems, Problem{Object: to.Kind() + " " + name, Source: last.name,
			Text: fmt.Sprintf("it is already defined with other settings by %s, whose definition stays: make both "+
				"equal, or choose another name", m.sources[first].name), Warning: true})
	}
}
