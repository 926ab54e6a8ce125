package file

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"fairlead/internal/frontend/traefik/static"
	"fairlead/internal/model"
	"fairlead/internal/model/gateway"
)

// writtenGateway returns the gateway with the fields that Declared reads, nil if there is
// none.
func writtenGateway(g *model.Gateway) ordered {
	if g == nil {
		return nil
	}
	settings := writtenFields(reflect.ValueOf(static.Settings(g.Static)).Elem())
	return append(settings, writtenFields(reflect.ValueOf(g.Config))...)
}

// writtenFields returns the fields of a struct that are set, in their order, with the names
// of keys. The fields of embedded structs count as its own.
func writtenFields(v reflect.Value) ordered {
	o := ordered{}
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		switch {
		case value.IsZero() || f.Tag.Get("declared") == "never":
		case f.Anonymous:
			o = append(o, writtenFields(value)...)
		default:
			if text := writtenValue(value); text != nil {
				o = append(o, member{gateway.Key(f.Name), text})
			}
		}
	}
	return o
}

// writtenValue returns a value as it is written, nil if it has no content.
func writtenValue(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer:
		return writtenValue(v.Elem())
	case reflect.Struct:
		return writtenFields(v)
	case reflect.Map:
		return writtenMap(v)
	case reflect.Slice:
		if texts, ok := v.Interface().([]string); ok {
			return slices.Clip(texts)
		}
		list := make([]any, v.Len())
		for i := range list {
			list[i] = writtenValue(v.Index(i))
		}
		return list
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return bare(strconv.FormatBool(v.Bool()))
	}
	if t, ok := v.Interface().(time.Duration); ok {
		return t.String()
	}
	return bare(fmt.Sprint(v.Interface()))
}

// writtenMap returns a map with its keys in order, nil if it is empty.
func writtenMap(v reflect.Value) any {
	byName := map[string]reflect.Value{}
	for _, key := range v.MapKeys() {
		byName[key.String()] = v.MapIndex(key)
	}
	o := ordered{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		o = append(o, member{name, writtenValue(byName[name])})
	}
	if len(o) == 0 {
		return nil
	}
	return o
}
