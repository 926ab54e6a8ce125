package command

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
)

// withLists returns a copy of v in which empty lists and maps take the place of nil ones,
// so that JSON has [] and {} for them, and never null. Types that encode themselves and
// fields that are omitted if they are nil (omitzero) stay as they are.
func withLists(v any) any {
	if v == nil {
		return nil
	}
	return listed(reflect.ValueOf(v)).Interface()
}

func listed(v reflect.Value) reflect.Value {
	if encodesItself(v.Type()) {
		return v
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return v
		}
		return wrapped(v)
	case reflect.Slice:
		return listedSlice(v)
	case reflect.Map:
		all := reflect.MakeMap(v.Type())
		for i := v.MapRange(); i.Next(); {
			all.SetMapIndex(i.Key(), listed(i.Value()))
		}
		return all
	case reflect.Struct:
		return listedStruct(v)
	}
	return v
}

// wrapped returns a pointer or an interface whose value has lists.
func wrapped(v reflect.Value) reflect.Value {
	inner := listed(v.Elem())
	if v.Kind() == reflect.Interface {
		return inner
	}
	p := reflect.New(inner.Type())
	p.Elem().Set(inner)
	return p.Convert(v.Type())
}

func listedSlice(v reflect.Value) reflect.Value {
	if v.Type().Elem().Kind() == reflect.Uint8 { // JSON has a text for bytes
		return v
	}
	all := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
	for i := range v.Len() {
		all.Index(i).Set(listed(v.Index(i)))
	}
	return all
}

func listedStruct(v reflect.Value) reflect.Value {
	s := reflect.New(v.Type()).Elem()
	s.Set(v)
	setLists(s)
	return s
}

// setLists sets the fields of a struct, and those of structs embedded in it.
func setLists(s reflect.Value) {
	for i := range s.NumField() {
		field, of := s.Field(i), s.Type().Field(i)
		_, options, _ := strings.Cut(of.Tag.Get("json"), ",")
		switch {
		case !of.IsExported():
			if of.Anonymous && of.Type.Kind() == reflect.Struct {
				setLists(field)
			}
		case !field.IsZero() || !strings.Contains(options, "omitzero"):
			field.Set(listed(field))
		}
	}
}

// encodesItself reports whether encoding/json calls a method of the type.
func encodesItself(t reflect.Type) bool {
	for _, as := range []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()} {
		if t.Implements(as) || t.Kind() != reflect.Interface && reflect.PointerTo(t).Implements(as) {
			return true
		}
	}
	return false
}
