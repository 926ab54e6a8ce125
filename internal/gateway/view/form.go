package view

import (
	"reflect"
	"strings"
	"time"
	"unicode"

	"fairlead/internal/model/gateway"
)

// odd are the names of keys that do not follow from the names of fields.
var odd = map[string]string{"SANs": "sans", "IPv6Subnet": "ipv6Subnet", "BrowserXSSFilter": "browserXssFilter"}

// form returns a value of the model as Traefik's files have it: with their keys, without what
// is not set, with durations as texts, without credentials (gateway.Shown). It returns nil for a nil pointer.
func form(v any) any { return formOf(reflect.ValueOf(v), "", "") }

// formOf returns the form of a value. secret is the kind of credential that its field has, key its key
// in a map.
func formOf(v reflect.Value, secret, key string) any {
	if d, ok := v.Interface().(time.Duration); ok {
		return d.String()
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return formOf(v.Elem(), secret, key)
	case reflect.Struct:
		all := map[string]any{}
		addFields(all, v)
		addDefaults(all, v.Type().Name())
		return all
	case reflect.Slice:
		all := make([]any, v.Len())
		for i := range all {
			all[i] = formOf(v.Index(i), secret, key)
		}
		return all
	case reflect.Map:
		all := map[string]any{}
		for _, at := range v.MapKeys() {
			all[at.String()] = formOf(v.MapIndex(at), secret, at.String())
		}
		return all
	case reflect.String:
		return gateway.Shown(secret, key, v.String())
	}
	return v.Interface()
}

// addFields adds the fields of a struct that are set. Those of an embedded one are its own.
func addFields(to map[string]any, v reflect.Value) {
	for i := range v.NumField() {
		at, field := v.Field(i), v.Type().Field(i)
		switch {
		case field.Anonymous:
			addFields(to, at)
		case !at.IsZero():
			to[keyOf(field.Name)] = formOf(at, gateway.SecretOf(field), "")
		}
	}
}

// keyOf returns the key of a field: it begins in lower case, and so does an abbreviation at its
// begin.
func keyOf(field string) string {
	if key := odd[field]; key != "" {
		return key
	}
	upper := 0
	for upper < len(field) && unicode.IsUpper(rune(field[upper])) {
		upper++
	}
	if upper > 1 && upper < len(field) {
		upper-- // the last one begins the next word
	}
	return strings.ToLower(field[:upper]) + field[upper:]
}
