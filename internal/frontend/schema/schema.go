// Package schema describes the values of files as a JSON Schema (2020-12), for editors and
// other programs. It knows the forms in which YAML files have values, and no field of any file.
package schema

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// Dialect is the dialect of the schemas.
const Dialect = "https://json-schema.org/draft/2020-12/schema"

// Schema describes a value. The fields are keywords of JSON Schema.
type Schema struct {
	Dialect     string `json:"$schema,omitempty"`
	Title       string `json:"title,omitempty"`
	Ref         string `json:"$ref,omitempty"`
	Description string `json:"description,omitempty"`
	// Type has one or more types.
	Type     []string `json:"-"`
	Enum     []any    `json:"enum,omitempty"`
	Examples []any    `json:"examples,omitempty"`
	Pattern  string   `json:"pattern,omitempty"`
	Minimum  *int64   `json:"minimum,omitempty"`
	Maximum  *int64   `json:"maximum,omitempty"`
	AnyOf    []Schema `json:"anyOf,omitempty"`
	OneOf    []Schema `json:"oneOf,omitempty"`
	Items    *Schema  `json:"items,omitempty"`
	// Properties are the fields of an object. Others are refused if Closed is true.
	Properties        map[string]Schema `json:"properties,omitempty"`
	PatternProperties map[string]Schema `json:"patternProperties,omitempty"`
	// Values describes the values of all other fields.
	Values        *Schema           `json:"-"`
	Closed        bool              `json:"-"`
	Required      []string          `json:"required,omitempty"`
	MinProperties int               `json:"minProperties,omitempty"`
	MaxProperties int               `json:"maxProperties,omitempty"`
	Defs          map[string]Schema `json:"$defs,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (s Schema) MarshalJSON() ([]byte, error) {
	type plain Schema
	out := struct {
		Type any `json:"type,omitempty"`
		plain
		Additional any `json:"additionalProperties,omitempty"`
	}{plain: plain(s)}
	if len(s.Type) == 1 {
		out.Type = s.Type[0]
	} else if len(s.Type) > 1 {
		out.Type = s.Type
	}
	if s.Values != nil {
		out.Additional = s.Values
	} else if s.Closed {
		out.Additional = json.RawMessage("false")
	}
	return json.Marshal(out)
}

// About returns the schema with a description and examples.
func (s Schema) About(description string, examples ...any) Schema {
	s.Description = description
	s.Examples = append(s.Examples, examples...)
	return s
}

// Text is any word. YAML makes numbers and Booleans of some words.
func Text() Schema { return Schema{Type: []string{"string", "number", "boolean"}} }

// Flag is true or false.
func Flag() Schema { return Schema{Type: []string{"boolean"}} }

// Number is an integer within limits, also in quotes.
func Number(least, most int64) Schema {
	s := Schema{Type: []string{"integer", "string"}, Pattern: "^-?[0-9]+$"}
	if least > math.MinInt64 {
		s.Minimum = &least
	}
	if most < math.MaxInt64 {
		s.Maximum = &most
	}
	return s
}

// Ports is a port, or a range such as 8000-8010.
func Ports() Schema {
	s := Number(1, math.MaxUint16)
	s.Pattern = "^[0-9]+(-[0-9]+)?$"
	return s
}

// Time is a duration with its unit, also in days, or 0.
func Time() Schema {
	s := Number(0, 0)
	s.Pattern = `^([0-9]+d)?(-?([0-9]*\.)?[0-9]+(ns|us|µs|ms|s|m|h))*$`
	return s
}

// Seconds is a duration with its unit, or an integer of seconds.
func Seconds() Schema {
	s := Number(math.MinInt64, math.MaxInt64)
	s.Pattern = `^-?(([0-9]*\.)?[0-9]+(ns|us|µs|ms|s|m|h))+$|^-?[0-9]+$`
	return s
}

// Or returns the schema of a number or time that can also be a word.
func (s Schema) Or(word string) Schema {
	s.Pattern = fmt.Sprintf("(%s)|^%s$", s.Pattern, word)
	return s
}

// OneOf is one of some words.
func OneOf[T ~string](words ...T) Schema {
	var s Schema
	for _, w := range words {
		s.Enum = append(s.Enum, string(w))
	}
	return s
}

// List is a list, or a single element.
func List(element Schema) Schema {
	list := Schema{Type: []string{"array", "null"}, Items: &element}
	switch {
	case len(element.Type) > 0 && element.Properties == nil && element.Values == nil:
		list.Type = slices.Concat(element.Type, list.Type)
		list.Pattern, list.Minimum, list.Maximum = element.Pattern, element.Minimum, element.Maximum
	case element.Description == "" && element.OneOf == nil && element.AnyOf != nil:
		list.AnyOf = append(slices.Clone(element.AnyOf), Schema{Type: list.Type, Items: &element})
		list.Type, list.Items = nil, nil
	default:
		list = Schema{AnyOf: []Schema{element, list}}
	}
	return list
}

// Object is an object that has no other fields than these.
func Object(fields map[string]Schema) Schema {
	return Schema{Type: []string{"object", "null"}, Properties: fields, Closed: true}
}

// Map has values by names that the user chooses.
func Map(value Schema) Schema {
	return Schema{Type: []string{"object", "null"}, Values: &value}
}

// Ref refers to a definition of the document.
func Ref(name string) Schema { return Schema{Ref: "#/$defs/" + name} }

// Any is one of several forms.
func Any(forms ...Schema) Schema { return Schema{AnyOf: forms} }
