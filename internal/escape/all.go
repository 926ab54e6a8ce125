package escape

import "reflect"

// All makes every string that v leads to one line, as Line does: fields that are
// exported, elements, and keys and values of maps. v is a pointer.
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

// allOfMap puts each entry of a map back with its strings escaped.
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
