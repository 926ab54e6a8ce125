package compat

import (
	"fmt"
	"go/types"
	"reflect"
	"sort"
	"strings"
)

// Shape returns the JSON document of a type that has each field once: with an empty text, 0, false, a list of one
// element, or an object with the key "*" for a map. A value of any kind, and a type inside itself, is null.
func Shape(t types.Type) any { return shape(t, nil) }

func shape(t types.Type, inside []types.Type) any {
	t = types.Unalias(t)
	if pointer, is := t.(*types.Pointer); is {
		return shape(pointer.Elem(), inside)
	}
	for _, outer := range inside {
		if types.Identical(outer, t) {
			return nil
		}
	}
	if named, is := t.(*types.Named); is {
		if own, is := encodesItself(named); is {
			return own
		}
		inside = append(inside[:len(inside):len(inside)], t)
	}
	switch u := t.Underlying().(type) {
	case *types.Basic:
		switch {
		case u.Info()&types.IsBoolean != 0:
			return false
		case u.Info()&types.IsNumeric != 0:
			return float64(0)
		}
		return ""
	case *types.Slice:
		if is(u.Elem(), types.Byte) {
			return "" // base64
		}
		return []any{shape(u.Elem(), inside)}
	case *types.Array:
		return []any{shape(u.Elem(), inside)}
	case *types.Map:
		return map[string]any{"*": shape(u.Elem(), inside)}
	case *types.Struct:
		fields := map[string]any{}
		addFields(fields, u, inside)
		return fields
	}
	return nil // an interface
}

func is(t types.Type, kind types.BasicKind) bool {
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Kind() == kind
}

// encodesItself returns the shape of a type with a method that encodes it.
func encodesItself(t *types.Named) (any, bool) {
	for _, recv := range []types.Type{t, types.NewPointer(t)} {
		methods := types.NewMethodSet(recv)
		for i := range methods.Len() {
			switch methods.At(i).Obj().Name() {
			case "MarshalJSON":
				if t.Obj().Name() == "Time" && t.Obj().Pkg().Path() == "time" {
					return "", true
				}
				return nil, true // such as json.RawMessage
			case "MarshalText":
				return "", true
			}
		}
	}
	return nil, false
}

// addFields adds the fields of a struct, with those of embedded structs.
func addFields(to map[string]any, s *types.Struct, inside []types.Type) {
	for i := range s.NumFields() {
		f := s.Field(i)
		name, _, _ := strings.Cut(reflect.StructTag(s.Tag(i)).Get("json"), ",")
		if embedded, is := deref(f.Type()).Underlying().(*types.Struct); is && f.Embedded() && name == "" {
			addFields(to, embedded, inside)
			continue
		}
		if name == "" {
			name = f.Name()
		}
		if f.Exported() && name != "-" {
			to[name] = shape(f.Type(), inside)
		}
	}
}

func deref(t types.Type) types.Type {
	if p, is := types.Unalias(t).(*types.Pointer); is {
		return p.Elem()
	}
	return t
}

// Lost returns what an older document has and a newer one does not have, or has with another kind of value. A null of
// either stands for anything.
func Lost(older, newer any) []string {
	var all []string
	lost(older, newer, "", &all)
	sort.Strings(all)
	return all
}

func lost(older, newer any, at string, to *[]string) {
	if older == nil || newer == nil {
		return
	}
	if reflect.TypeOf(older) != reflect.TypeOf(newer) {
		*to = append(*to, fmt.Sprintf("%s was %s and is %s", at, kind(older), kind(newer)))
		return
	}
	switch o := older.(type) {
	case map[string]any:
		for key, value := range o {
			now, has := newer.(map[string]any)[key]
			if !has {
				*to = append(*to, at+"."+key+" is gone")
				continue
			}
			lost(value, now, at+"."+key, to)
		}
	case []any:
		if n := newer.([]any); len(o) > 0 && len(n) > 0 {
			lost(o[0], n[0], at+"[]", to)
		}
	}
}

func kind(v any) string {
	switch v.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return "a text"
	case bool:
		return "a boolean"
	}
	return "a number"
}

// Union returns a document with the fields of both. The kinds of values must be the same.
func Union(older, newer any) any {
	switch o := older.(type) {
	case map[string]any:
		n, is := newer.(map[string]any)
		if !is {
			return older
		}
		both := map[string]any{}
		for key, value := range n {
			both[key] = value
		}
		for key, value := range o {
			both[key] = Union(value, n[key])
		}
		return both
	case []any:
		if n, is := newer.([]any); is && len(o) > 0 && len(n) > 0 {
			return []any{Union(o[0], n[0])}
		}
	case nil:
		return newer
	}
	return older
}
