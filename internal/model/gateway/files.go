package gateway

import (
	"cmp"
	"reflect"
	"strings"
)

// Text is a text in a value of the model.
type Text struct {
	// Value is the text itself, and a copy if it is in a map.
	Value *string
	// Tag is the value of the tag with which the text was found, Field the name of its field, and In the struct that
	// has the field.
	Tag, Field string
	In         reflect.Value
}

// Texts calls visit with each text in what v points to whose field has the tag key, also those in a list with the tag,
// and those without a tag of their own in a struct with it.
// These tags have a meaning, besides "secret" (see SecretWhole):
//
//   - `file:"text"`: the name of a file, or a PEM text instead. `file:"lines"` on the field NAMEFile: the name of a
//     file, whose lines come before those in the field NAME.
//   - `regexp:"true"`: a regular expression, whose size the gateway limits.
//   - `refers:"KIND"`: the name of another object of this kind.
func Texts(v any, key string, visit func(Text)) { texts(reflect.ValueOf(v), key, Text{}, visit) }

func texts(v reflect.Value, key string, at Text, visit func(Text)) {
	switch v.Kind() {
	case reflect.String:
		if at.Tag == "" {
			return
		}
		text := v.String()
		if at.Value = &text; v.CanAddr() {
			at.Value = v.Addr().Interface().(*string)
		}
		visit(at)
	case reflect.Pointer:
		if !v.IsNil() {
			texts(v.Elem(), key, at, visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			texts(v.Index(i), key, at, visit)
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			texts(v.MapIndex(k), key, at, visit)
		}
	case reflect.Struct:
		for field, value := range v.Fields() {
			texts(value, key, Text{Tag: cmp.Or(field.Tag.Get(key), at.Tag), Field: field.Name, In: v}, visit)
		}
	}
}

// Files returns the names of files in what v points to: the texts with the tag "file" that are no PEM texts.
func Files(v any) (names []string) {
	Texts(v, "file", func(t Text) {
		pem := t.Tag == "text" && strings.HasPrefix(strings.TrimSpace(*t.Value), "-----BEGIN")
		if *t.Value != "" && !pem {
			names = append(names, *t.Value)
		}
	})
	return names
}

// Clone returns a copy of what v points to that shares nothing with it.
func Clone[T any](v T) T { return clone(reflect.ValueOf(v)).Interface().(T) }

func clone(v reflect.Value) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			c.Set(reflect.New(v.Type().Elem()))
			c.Elem().Set(clone(v.Elem()))
		}
	case reflect.Slice:
		if !v.IsNil() {
			c.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		}
		for i := range v.Len() {
			c.Index(i).Set(clone(v.Index(i)))
		}
	case reflect.Map:
		if !v.IsNil() {
			c.Set(reflect.MakeMap(v.Type()))
		}
		for _, key := range v.MapKeys() {
			c.SetMapIndex(key, clone(v.MapIndex(key)))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if c.Field(i).CanSet() {
				c.Field(i).Set(clone(v.Field(i)))
			}
		}
	}
	return c
}
