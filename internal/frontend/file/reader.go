package file

import (
	"fmt"
	"strconv"
	"strings"

	"fairlead/internal/frontend/schema"

	"go.yaml.in/yaml/v3"
)

// reader parses one document into a Set.
type reader struct {
	*Set
	file string
}

// value is the parser of a value, and the schema of what it accepts.
type value struct {
	read   func(n *yaml.Node, path string)
	schema func() schema.Schema
}

// field is a field of an object. help describes it in the schema.
type field struct {
	name, help string
	value
	examples []any
}

// such returns the field with examples of its value.
func (f field) such(examples ...any) field {
	f.examples = examples
	return f
}

// objectOf returns the schema of an object with these fields.
func objectOf(known []field) schema.Schema {
	fields := map[string]schema.Schema{}
	for _, f := range known {
		fields[f.name] = f.schema().About(f.help, f.examples...)
	}
	return schema.Object(fields)
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

// parsed returns a parser for a scalar value that the schema describes.
func (r *reader) parsed(parse func(string) error, as func() schema.Schema) value {
	return value{func(n *yaml.Node, path string) { r.word(n, path, parse) }, as}
}

// text returns a parser for a text.
func (r *reader) text(into *string) value {
	return r.parsed(func(word string) error { *into = word; return nil }, schema.Text)
}

// listed returns a parser for a list, or a single element.
func (r *reader) listed(element value) value {
	return value{func(n *yaml.Node, path string) { r.each(n, path, element.read) },
		func() schema.Schema { return schema.List(element.schema()) }}
}

// fields returns a parser for an object.
func (r *reader) fields(known func() []field) value {
	return value{func(n *yaml.Node, path string) { r.object(n, path, known()) },
		func() schema.Schema { return objectOf(known()) }}
}

// words returns a parser for a list of scalar values.
func (r *reader) words(parse func(string) error) value { return r.listed(r.parsed(parse, schema.Text)) }

// flag returns a parser for true or false.
func (r *reader) flag(into *bool) value {
	return r.parsed(func(word string) error {
		if word != "true" && word != "false" {
			return fmt.Errorf("%q: want true or false", word)
		}
		*into = word == "true"
		return nil
	}, schema.Flag)
}

// number returns a parser for a number with that many bits.
func number[T int | uint16 | uint32](r *reader, bits int, into *T) value {
	return r.parsed(func(word string) error {
		n, err := strconv.ParseUint(word, 10, bits)
		if err != nil {
			return fmt.Errorf("%q: want a number up to %d", word, uint64(1)<<bits-1)
		}
		*into = T(n)
		return nil
	}, func() schema.Schema { return schema.Number(0, 1<<bits-1) })
}

// chosen returns the schema of one of some words.
func chosen[T ~string](words ...T) func() schema.Schema {
	return func() schema.Schema { return schema.OneOf(words...) }
}
