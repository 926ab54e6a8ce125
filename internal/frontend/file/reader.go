package file

import (
	"fmt"
	"net/netip"
	"reflect"
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

// value is the parser of a value, the schema of what it accepts, and the value as it is written.
type value struct {
	read   func(n *yaml.Node, path string)
	schema func() schema.Schema
	// write is nil for values that are written with their object. It returns nil or an empty value for a default.
	write func() any
}

// writes returns the value with what is written for it.
func (v value) writes(write func() any) value {
	v.write = write
	return v
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

// writtenObject returns the fields that have other values than their defaults.
func writtenObject(known []field) (o ordered) {
	for _, f := range known {
		if f.write == nil {
			continue
		}
		text := f.write()
		if v := reflect.ValueOf(text); v.IsValid() && !v.IsZero() && (v.Kind() != reflect.Slice || v.Len() > 0) {
			o = append(o, member{f.name, text})
		}
	}
	return o
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
	return value{read: func(n *yaml.Node, path string) { r.word(n, path, parse) }, schema: as}
}

// text returns a parser for a text.
func (r *reader) text(into *string) value {
	return r.parsed(func(word string) error { *into = word; return nil }, schema.Text).writes(stored(into))
}

// texts returns a parser for a list of texts.
func (r *reader) texts(into *[]string) value {
	return r.words(func(word string) error { *into = append(*into, word); return nil }).writes(stored(into))
}

// address returns a parser for an address.
func (r *reader) address(into *netip.Addr) value {
	return r.parsed(address(into), schema.Text).writes(shown(into))
}

// addresses returns a parser for a list of addresses.
func (r *reader) addresses(into *[]netip.Addr) value {
	return r.words(addresses(into)).writes(func() any { return strs(*into) })
}

// listed returns a parser for a list, or a single element.
func (r *reader) listed(element value) value {
	return value{read: func(n *yaml.Node, path string) { r.each(n, path, element.read) },
		schema: func() schema.Schema { return schema.List(element.schema()) }}
}

// fields returns a parser for an object.
func (r *reader) fields(known func() []field) value {
	return value{read: func(n *yaml.Node, path string) { r.object(n, path, known()) },
		schema: func() schema.Schema { return objectOf(known()) }}
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
	}, schema.Flag).writes(stored(into))
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
	}, func() schema.Schema { return schema.Number(0, 1<<bits-1) }).writes(stored(into))
}

// stored writes a value as it is stored.
func stored[T any](from *T) func() any { return func() any { return *from } }

// word is an address or a range, which may be missing.
type word interface {
	fmt.Stringer
	IsValid() bool
}

// shown writes an address or a range.
func shown[T word](from *T) func() any {
	return func() any {
		if !(*from).IsValid() {
			return nil
		}
		return (*from).String()
	}
}

// chosen returns the schema of one of some words.
func chosen[T ~string](words ...T) func() schema.Schema {
	return func() schema.Schema { return schema.OneOf(words...) }
}
