package traefik

import (
	_ "embed"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"fairlead/internal/frontend/schema"
	"fairlead/internal/frontend/traefik/static"
	"fairlead/internal/model/gateway"
)

// fieldTexts has a line for each field of the gateway: TYPE.KEY: description. TYPE is the Go type
// that has the field.
//
//go:embed fields.txt
var fieldTexts string

// Schema returns the schema of the gateway of fairlead.yaml. Its keys are spelled as in Traefik's
// documentation, although Declared ignores their case. Its definitions are those of Definitions.
func Schema() schema.Schema { return newDescriber().gateway() }

// ClusterSchema returns the schema of the gateway of a cluster, with the same definitions.
func ClusterSchema() schema.Schema { return newDescriber().cluster() }

// Definitions returns the schemas to which Schema and ClusterSchema refer, by name.
func Definitions() map[string]schema.Schema {
	d := newDescriber()
	d.gateway()
	d.cluster()
	return d.defs
}

// describer makes schemas of types.
type describer struct {
	texts map[string]string
	// words are the values of fields that have one of some words, by TYPE.KEY.
	words map[string][]string
	defs  map[string]schema.Schema
	// used are the names of the fields so far.
	used map[string]bool
}

func newDescriber() *describer {
	d := &describer{texts: map[string]string{}, defs: map[string]schema.Schema{}, words: static.Words(),
		used: map[string]bool{}}
	for line := range strings.Lines(fieldTexts) {
		name, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		d.texts[name] = text
	}
	return d
}

func (d *describer) gateway() schema.Schema {
	fields := map[string]schema.Schema{}
	d.fields(reflect.TypeOf(static.Settings(gateway.Static{})).Elem(), fields, staticParts)
	d.fields(reflect.TypeFor[gateway.Config](), fields, dynamicParts)
	s := schema.Object(fields)
	s.Required = []string{"entryPoints"}
	return s
}

func (d *describer) cluster() schema.Schema {
	fields := map[string]schema.Schema{}
	d.fields(reflect.TypeFor[gateway.Config](), fields, dynamicParts)
	return schema.Object(fields)
}

// object returns the schema of a struct.
func (d *describer) object(t reflect.Type) schema.Schema {
	fields := map[string]schema.Schema{}
	d.fields(t, fields, nil)
	s := schema.Object(fields)
	if hasKinds(t) && len(fields) == len(kindsOf(t)) {
		s.MinProperties, s.MaxProperties = 1, 1
	} else if hasKinds(t) {
		for _, kind := range kindsOf(t) {
			s.OneOf = append(s.OneOf, schema.Schema{Required: []string{kind}})
		}
	}
	return s
}

// otherFiles is the setting of Traefik that fairlead.yaml has not.
const otherFiles = "Providers.file"

// fields adds the schemas of a struct's fields, only of those with these keys unless only is nil.
// The fields of embedded structs count as its own.
func (d *describer) fields(t reflect.Type, into map[string]schema.Schema, only []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		key := gateway.Key(f.Name)
		name := t.Name() + "." + key
		switch {
		case f.Anonymous:
			d.fields(f.Type, into, nil)
		case f.Tag.Get("declared") == "never", name == otherFiles,
			only != nil && !slices.Contains(only, strings.ToLower(key)):
		default:
			d.used[name] = true
			into[key] = d.field(name, f.Type).About(d.texts[name])
		}
	}
}

func (d *describer) field(name string, t reflect.Type) schema.Schema {
	if words := d.words[name]; words != nil {
		return schema.OneOf(words...)
	}
	return d.value(t)
}

// hasKinds reports whether gateway.OneKind wants exactly one of the struct's kinds.
func hasKinds(t reflect.Type) bool { return gateway.OneKind(reflect.New(t).Interface()) != nil }

// kindsOf returns the keys of a struct's kinds.
func kindsOf(t reflect.Type) (kinds []string) {
	for i := range t.NumField() {
		if f := t.Field(i); f.Type.Kind() != reflect.Slice {
			kinds = append(kinds, gateway.Key(f.Name))
		}
	}
	return kinds
}

// value returns the schema of a value of the type, in the forms that package tree decodes.
func (d *describer) value(t reflect.Type) schema.Schema {
	if t == reflect.TypeFor[time.Duration]() {
		return schema.Seconds()
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.pointer(t.Elem())
	case reflect.Struct:
		return d.object(t)
	case reflect.Map:
		return schema.Map(d.value(t.Elem()))
	case reflect.Slice:
		return d.list(t.Elem())
	case reflect.String:
		return schema.Text()
	case reflect.Bool:
		return schema.Flag()
	case reflect.Int, reflect.Int32, reflect.Int64:
		return schema.Number(math.MinInt64, math.MaxInt64)
	case reflect.Float64:
		return schema.Schema{Type: []string{"number", "string"}}
	}
	panic(fmt.Sprintf("traefik: no schema of %s", t))
}

// pointer returns the schema of what a pointer has. A struct also has the values true and false.
func (d *describer) pointer(t reflect.Type) schema.Schema {
	if t.Kind() != reflect.Struct {
		return d.value(t)
	}
	name := t.Name()
	if name == "" {
		name = "Empty"
	}
	if _, known := d.defs[name]; !known {
		s := d.object(t)
		s.Type = append(s.Type, "boolean")
		d.defs[name] = s
	}
	return schema.Ref(name)
}

// list returns the schema of a list. One of words can also be a text with commas.
func (d *describer) list(element reflect.Type) schema.Schema {
	s := d.value(element)
	if element.Kind() == reflect.Struct {
		return schema.Schema{Type: []string{"array", "null"}, Items: &s}
	}
	return schema.List(s)
}
