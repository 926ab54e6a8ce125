package permission_test

import (
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"
)

// field is a field of a type that has a single value: of the type itself, or of a struct, list or map in it.
type field struct {
	path string
	kind reflect.Type
	// in calls set with the field of a value of the type, and makes the structs, lists and maps around it.
	in func(root reflect.Value, set func(reflect.Value))
}

// whole are structs that are one value.
var whole = []reflect.Type{reflect.TypeFor[netip.Addr](), reflect.TypeFor[netip.Prefix](),
	reflect.TypeFor[netip.AddrPort](),
	reflect.TypeFor[time.Time]()}

// fieldsOf returns the fields of a type that JSON or labels can set. skip reports the fields that they cannot set.
func fieldsOf(t reflect.Type, skip func(reflect.StructField) bool) []field {
	switch {
	case slices.Contains(whole, t):
	case t.Kind() == reflect.Struct:
		var all []field
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && !skip(f) {
				all = append(all, below(f.Name, fieldsOf(f.Type, skip), func(v reflect.Value, do func(reflect.Value)) {
					do(v.Field(i))
				})...)
			}
		}
		return all
	case t.Kind() == reflect.Pointer:
		all := below("", fieldsOf(t.Elem(), skip), func(v reflect.Value, do func(reflect.Value)) {
			if v.IsNil() {
				v.Set(reflect.New(t.Elem()))
			}
			do(v.Elem())
		})
		if t.Elem().Kind() == reflect.Struct && t.Elem().NumField() == 0 {
			return []field{{kind: t, in: func(v reflect.Value, set func(reflect.Value)) { set(v) }}}
		}
		return all
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		return below("[0]", fieldsOf(t.Elem(), skip), func(v reflect.Value, do func(reflect.Value)) {
			if v.Len() == 0 {
				v.Set(reflect.MakeSlice(t, 1, 1))
			}
			do(v.Index(0))
		})
	case t.Kind() == reflect.Map:
		return below("x", fieldsOf(t.Elem(), skip), func(v reflect.Value, do func(reflect.Value)) {
			value := reflect.New(t.Elem()).Elem()
			do(value)
			v.Set(reflect.MakeMap(t))
			key := reflect.New(t.Key()).Elem()
			if key.Kind() == reflect.String {
				key.SetString("x")
			}
			v.SetMapIndex(key, value)
		})
	}
	return []field{{kind: t, in: func(v reflect.Value, set func(reflect.Value)) { set(v) }}}
}

// below returns the fields with a name before their paths.
func below(name string, all []field, enter func(reflect.Value, func(reflect.Value))) []field {
	for i, f := range all {
		all[i].path = strings.Trim(name+"."+f.path, ".")
		all[i].in = func(v reflect.Value, set func(reflect.Value)) {
			enter(v, func(v reflect.Value) { f.in(v, set) })
		}
	}
	return all
}

// attempts returns what to set a field to: a path for texts, the smallest and the largest values of numbers.
func attempts(t reflect.Type, path string) (all []any) {
	switch t.Kind() {
	case reflect.String:
		return []any{path}
	case reflect.Int, reflect.Int64:
		return []any{int64(1), int64(-1), int64(math.MaxInt64), int64(math.MinInt64)}
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return []any{uint64(1), uint64(math.MaxUint64 >> (64 - t.Bits()))}
	case reflect.Bool:
		return []any{true}
	case reflect.Slice:
		return []any{[]byte(path)}
	}
	if t == reflect.TypeFor[netip.Addr]() {
		return []any{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("fe80::1%eth0"), netip.MustParseAddr("::")}
	}
	return nil
}

// set returns what sets a field to an attempt.
func set(attempt any) func(reflect.Value) {
	return func(v reflect.Value) { v.Set(reflect.ValueOf(attempt).Convert(v.Type())) }
}
