package file

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// reader parses one document into a Set.
type reader struct {
	*Set
	file string
}

// field is a field of an object, with its parser.
type field struct {
	name string
	read func(n *yaml.Node, path string)
}

func (r *reader) mistake(n *yaml.Node, path, format string, args ...any) {
	r.mistakes = append(r.mistakes, Mistake{r.file, n.Line, path, fmt.Sprintf(format, args...)})
}

// object parses a mapping. It parses the fields in the order of known, not in that of
// the file. A null value is an object without fields.
func (r *reader) object(n *yaml.Node, path string, known []field) {
	if n = followed(n); n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.mistake(n, path, "want fields, each as NAME: VALUE")
		return
	}
	values := map[string]*yaml.Node{}
	fields(n, func(key, value *yaml.Node) {
		at := join(path, key.Value)
		switch {
		case values[key.Value] != nil:
			r.mistake(key, at, "it is declared twice, first in line %d: leave one out", values[key.Value].Line)
		case !isKnown(known, key.Value):
			r.mistake(key, at, "there is no such field: want one of %s", names(known))
		default:
			values[key.Value] = value
		}
	})
	for _, f := range known {
		if v := values[f.name]; v != nil {
			f.read(v, join(path, f.name))
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func isKnown(known []field, name string) bool {
	for _, f := range known {
		if f.name == name {
			return true
		}
	}
	return false
}

func names(known []field) string {
	all := make([]string, len(known))
	for i, f := range known {
		all[i] = f.name
	}
	return strings.Join(all, ", ")
}

// each parses the elements of a list, or a single value. A null value is an empty
// list.
func (r *reader) each(n *yaml.Node, path string, read func(n *yaml.Node, path string)) {
	switch n = followed(n); {
	case n.Tag == "!!null":
	case n.Kind != yaml.SequenceNode:
		read(n, path)
	default:
		for i, item := range n.Content {
			read(followed(item), fmt.Sprintf("%s[%d]", path, i))
		}
	}
}

// word parses a scalar value.
func (r *reader) word(n *yaml.Node, path string, parse func(string) error) {
	if n = followed(n); n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		r.mistake(n, path, "want a single value")
		return
	}
	if err := parse(n.Value); err != nil {
		r.mistake(n, path, "%v", err)
	}
}

// text returns a parser for a text.
func (r *reader) text(into *string) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		r.word(n, path, func(word string) error { *into = word; return nil })
	}
}

// parsed returns a parser for a scalar value.
func (r *reader) parsed(parse func(string) error) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) { r.word(n, path, parse) }
}

// words returns a parser for a list of scalar values.
func (r *reader) words(parse func(string) error) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		r.each(n, path, func(n *yaml.Node, path string) { r.word(n, path, parse) })
	}
}

// flag returns a parser for true or false.
func (r *reader) flag(into *bool) func(*yaml.Node, string) {
	return r.parsed(func(word string) error {
		if word != "true" && word != "false" {
			return fmt.Errorf("%q: want true or false", word)
		}
		*into = word == "true"
		return nil
	})
}

// number returns a parser for a number with that many bits.
func number[T int | uint16 | uint32](r *reader, bits int, into *T) func(*yaml.Node, string) {
	return r.parsed(func(word string) error {
		n, err := strconv.ParseUint(word, 10, bits)
		if err != nil {
			return fmt.Errorf("%q: want a number up to %d", word, uint64(1)<<bits-1)
		}
		*into = T(n)
		return nil
	})
}
