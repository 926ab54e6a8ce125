package view

import (
	"cmp"
	"reflect"
	"time"

	"fairlead/internal/model/gateway"
)

// odd are the keys of Traefik's API that differ from those of files.
var odd = map[string]string{"browserXSSFilter": "browserXssFilter"}

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
			key := gateway.Key(field.Name)
			to[cmp.Or(odd[key], key)] = formOf(at, gateway.SecretOf(field), "")
		}
	}
}
