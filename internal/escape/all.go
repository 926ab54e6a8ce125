package escape

import "reflect"

// All applies Line to every string in the value that v points to: in exported
// fields, elements, and keys and values of maps.
func All(v any) { all(reflect.ValueOf(v).Elem()) }

func all(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() {
			v.SetString(Line(v.String()))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			all(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				all(v.Field(i))
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			all(v.Index(i))
		}
	case reflect.Map:
		allOfMap(v)
	}
}

// allOfMap replaces each entry of a map with its escaped form.
func allOfMap(m reflect.Value) {
	for _, key := range m.MapKeys() {
		k, value := reflect.New(key.Type()).Elem(), reflect.New(m.Type().Elem()).Elem()
		k.Set(key)
		value.Set(m.MapIndex(key))
		all(k)
		all(value)
		m.SetMapIndex(key, reflect.Value{})
		m.SetMapIndex(k, value)
	}
}
