// Package file reads and writes the YAML files that declare networks, attachments
// with their publishes, virtual services and the HTTP gateway. It converts text to values and back,
// and reports the line and the field of each mistake, also of those that the daemon
// finds. It does not apply anything.
//
// The fields have the names of the commands' flags, or the names that compose files
// have for the same thing. JSON is valid YAML, and is accepted too.
package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/frontend/traefik/tree"

	"go.yaml.in/yaml/v3"
)

// Input is the text of a file.
type Input struct {
	// Name is the file's name in mistakes.
	Name string
	Text []byte
}

// Mistake is a mistake in a file.
type Mistake struct {
	File string `json:"file"`
	// Line counts from 1; 0 means the whole file.
	Line int `json:"line,omitempty"`
	// Field is e.g. attachments[1].publish[0]; empty for the whole file.
	Field string `json:"field,omitempty"`
	// Text describes the mistake and what to do.
	Text string `json:"text"`
}

// Mistakes is the error of files with mistakes. It contains all of them.
type Mistakes []Mistake

// Error writes one mistake per line, as FILE:LINE: FIELD: TEXT.
func (m Mistakes) Error() string {
	var lines []string
	for _, one := range m.Unwrap() {
		lines = append(lines, one.Error())
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns one error per mistake.
func (m Mistakes) Unwrap() []error {
	all := make([]error, len(m))
	for i, one := range m {
		text := one.File
		if one.Line > 0 {
			text += fmt.Sprintf(":%d", one.Line)
		}
		for _, part := range []string{one.Field, one.Text} {
			if part != "" {
				text += ": " + part
			}
		}
		all[i] = errors.New(text)
	}
	return all
}

// Set is the content of a set of files.
type Set struct {
	Spec api.Spec
	// spots are the places where parts of the Spec are declared, by the parts' names
	// in the Spec, e.g. attachments[1].publishes[0].
	spots    map[string]spot
	mistakes Mistakes
	first    string
}

// spot is a place in a file.
type spot struct {
	file  string
	node  *yaml.Node
	field string
}

// Read parses a set of files. If it returns an error, that is Mistakes with all
// mistakes of all files.
func Read(inputs []Input) (*Set, error) {
	s := &Set{spots: map[string]spot{}}
	for _, in := range inputs {
		if s.first == "" {
			s.first = in.Name
		}
		s.read(in)
	}
	if len(s.mistakes) > 0 {
		s.order(inputs)
		return nil, s.mistakes
	}
	return s, nil
}

// order sorts mistakes by file and line.
func (s *Set) order(inputs []Input) {
	at := func(m Mistake) int { return slices.IndexFunc(inputs, func(in Input) bool { return in.Name == m.File }) }
	slices.SortStableFunc(s.mistakes, func(a, b Mistake) int {
		if a.File != b.File {
			return at(a) - at(b)
		}
		return a.Line - b.Line
	})
}

// read parses all documents of a file.
func (s *Set) read(in Input) {
	decoder := yaml.NewDecoder(bytes.NewReader(in.Text))
	for {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			s.mistakes = append(s.mistakes, syntaxError(in, err))
			return
		}
		r := &reader{Set: s, file: in.Name}
		r.document(doc.Content[0])
	}
}

// syntaxError converts an error of the YAML library, with its line. The library returns
// no line for an unknown anchor. Then syntaxError searches for the shortest part of the
// file that gives the same error, and takes its last line.
func syntaxError(in Input, err error) Mistake {
	m := Mistake{File: in.Name, Text: strings.TrimPrefix(tree.WithoutValues(err), "yaml: ")}
	if n, _ := fmt.Sscanf(m.Text, "line %d:", &m.Line); n == 1 {
		_, m.Text, _ = strings.Cut(m.Text, ": ")
		return m
	}
	lines := bytes.SplitAfter(in.Text, []byte("\n"))
	m.Line = min(len(lines), 1+sort.Search(len(lines), func(i int) bool {
		return decodeAll(bytes.Join(lines[:i+1], nil)).Error() == err.Error()
	}))
	return m
}

// decodeAll returns the first error of a file's documents, or io.EOF.
func decodeAll(text []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var doc yaml.Node
		if err := decoder.Decode(&doc); err != nil {
			return err
		}
	}
}

// Locate adds the lines and fields of the files to the api.Mistakes in an error of
// the daemon: it returns a *api.Fault with the same code that wraps Mistakes. It
// returns other errors unchanged.
func (s *Set) Locate(err error) error {
	var found api.Mistakes
	if !errors.As(err, &found) {
		return err
	}
	var all Mistakes
	for _, m := range found {
		at, known := s.spots[m.At]
		if !known {
			all = append(all, Mistake{File: s.first, Text: m.Text})
			continue
		}
		at = at.narrow(m.Text)
		all = append(all, Mistake{at.file, at.node.Line, at.field, m.Text})
	}
	return &api.Fault{Code: api.CodeOf(err), Err: all}
}

// narrow returns the place of the field that a text mentions first, with its name
// and value. It returns the object's place if the text mentions no field.
func (at spot) narrow(text string) spot {
	best, where := at, len(text)
	fields(at.node, func(key, value *yaml.Node) {
		items := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			items = value.Content
		}
		for i, item := range items {
			field := at.field + "." + key.Value
			if value.Kind == yaml.SequenceNode {
				field += fmt.Sprintf("[%d]", i)
			}
			word := strings.ReplaceAll(key.Value, "-", " ")
			for _, mention := range []string{word + " " + item.Value, fmt.Sprintf("%s %q", word, item.Value)} {
				if j := strings.Index(text, mention); item.Value != "" && j >= 0 && j < where {
					best, where = spot{at.file, item, field}, j
				}
			}
		}
	})
	return best
}

// fields calls fn for each field of a mapping. It resolves aliases.
func fields(n *yaml.Node, fn func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		fn(n.Content[i], followed(n.Content[i+1]))
	}
}

// followed returns the node to which an alias refers, or n if it is no alias.
func followed(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
