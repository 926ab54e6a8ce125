// Package file reads and writes what users declare in YAML: networks,
// attachments and their publishes, virtual services. It turns text into values and back, and
// tells the line and the field of every mistake, those that the daemon finds
// included. It applies nothing.
//
// A file reads like the flags of the commands, and like a compose file where
// that has a word for the same. JSON is YAML, too.
package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"fairlead/internal/daemon"

	"go.yaml.in/yaml/v3"
)

// Input is a file as it was read.
type Input struct {
	// Name is what mistakes call it.
	Name string
	Text []byte
}

// Mistake is something wrong in a file.
type Mistake struct {
	File string `json:"file"`
	// Line counts from 1; 0 is the whole file.
	Line int `json:"line,omitempty"`
	// Field is e.g. attachments[1].publish[0]; empty for the file.
	Field string `json:"field,omitempty"`
	// Text says what is wrong and what to do.
	Text string `json:"text"`
}

// Mistakes is the error of files that declare what cannot be. It holds all of
// them.
type Mistakes []Mistake

// Error writes a mistake a line, as compilers do.
func (m Mistakes) Error() string {
	var lines []string
	for _, one := range m.Unwrap() {
		lines = append(lines, one.Error())
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns an error for each mistake.
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

// Set is a set of files, read.
type Set struct {
	Spec daemon.Spec
	// spots are where parts of the Spec are declared, by their names there.
	spots    map[string]spot
	mistakes Mistakes
	first    string
}

// spot is where something is declared.
type spot struct {
	file  string
	node  *yaml.Node
	field string
}

// Read reads a set of files. The error is of type Mistakes.
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

// order sorts mistakes by where they are.
func (s *Set) order(inputs []Input) {
	at := func(m Mistake) int { return slices.IndexFunc(inputs, func(in Input) bool { return in.Name == m.File }) }
	slices.SortStableFunc(s.mistakes, func(a, b Mistake) int {
		if a.File != b.File {
			return at(a) - at(b)
		}
		return a.Line - b.Line
	})
}

// read reads every document of a file.
func (s *Set) read(in Input) {
	decoder := yaml.NewDecoder(bytes.NewReader(in.Text))
	for {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			s.mistakes = append(s.mistakes, syntax(in, err))
			return
		}
		r := &reader{Set: s, file: in.Name}
		r.document(doc.Content[0])
	}
}

// syntax takes the line out of an error of the YAML library. The library names no
// line for an unknown anchor; it is the last of the fewest lines that give the
// same error.
func syntax(in Input, err error) Mistake {
	m := Mistake{File: in.Name, Text: strings.TrimPrefix(err.Error(), "yaml: ")}
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

// decodeAll returns the first error of a file's documents, io.EOF if there is none.
func decodeAll(text []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var doc yaml.Node
		if err := decoder.Decode(&doc); err != nil {
			return err
		}
	}
}

// Locate returns an error of the daemon's with the lines and fields of the
// mistakes in it.
func (s *Set) Locate(err error) error {
	var found daemon.Mistakes
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
	return &daemon.Fault{Code: daemon.CodeOf(err), Err: all}
}

// narrow returns the field of an object that a text speaks of first: it says
// the field's name and then its value.
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
			for _, said := range []string{word + " " + item.Value, fmt.Sprintf("%s %q", word, item.Value)} {
				if j := strings.Index(text, said); item.Value != "" && j >= 0 && j < where {
					best, where = spot{at.file, item, field}, j
				}
			}
		}
	})
	return best
}

// fields calls fn for each field of a mapping, aliases followed.
func fields(n *yaml.Node, fn func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		fn(n.Content[i], followed(n.Content[i+1]))
	}
}

// followed returns what an alias stands for.
func followed(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
