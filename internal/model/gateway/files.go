package gateway

import (
	"reflect"
	"strings"
)

// Files returns the names of files in a value: those of the fields with the tag "file". A field with the tag
// `file:"text"` can have a PEM text instead of a name.
func Files(v any) []string { return filesIn(nil, reflect.ValueOf(v), "") }

func filesIn(found []string, v reflect.Value, tag string) []string {
	switch v.Kind() {
	case reflect.String:
		text := tag == "text" && strings.HasPrefix(strings.TrimSpace(v.String()), "-----BEGIN")
		if tag != "" && v.String() != "" && !text {
			found = append(found, v.String())
		}
	case reflect.Pointer:
		if !v.IsNil() {
			found = filesIn(found, v.Elem(), tag)
		}
	case reflect.Slice:
		for i := range v.Len() {
			found = filesIn(found, v.Index(i), tag)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			found = filesIn(found, v.MapIndex(key), tag)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			found = filesIn(found, v.Field(i), v.Type().Field(i).Tag.Get("file"))
		}
	}
	return found
}
