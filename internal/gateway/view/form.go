package view

import (
	"reflect"
	"strings"
	"time"
	"unicode"
)

// odd are the names of keys that do not follow from the names of fields.
var odd = map[string]string{"SANs": "sans", "IPv6Subnet": "ipv6Subnet", "BrowserXSSFilter": "browserXssFilter"}

// secret are fields with secrets, and what is shown of them. Traefik's API shows hashes of
// passwords to all who may read it.
var secret = map[string]func(text string) string{
	"Users":    func(text string) string { name, _, _ := strings.Cut(text, ":"); return name + ":(hidden)" },
	"Key":      hideText,
	"KeyFile":  hideText,
	"Password": func(string) string { return "(hidden)" },
}

// hideText hides the text of a private key, and shows the name of a file.
func hideText(text string) string {
	if strings.Contains(text, "-----BEGIN") {
		return "(hidden)"
	}
	return text
}

// form returns a value of the model as Traefik's files have it: with their keys, without what
// is not set, with durations as texts. It returns nil for a nil pointer.
func form(v any) any { return formOf(reflect.ValueOf(v), "") }

func formOf(v reflect.Value, field string) any {
	if d, ok := v.Interface().(time.Duration); ok {
		return d.String()
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return formOf(v.Elem(), field)
	case reflect.Struct:
		all := map[string]any{}
		addFields(all, v)
		return all
	case reflect.Slice:
		all := make([]any, v.Len())
		for i := range all {
			all[i] = formOf(v.Index(i), field)
		}
		return all
	case reflect.Map:
		all := map[string]any{}
		for _, key := range v.MapKeys() {
			all[key.String()] = formOf(v.MapIndex(key), field)
		}
		return all
	case reflect.String:
		if hide := secret[field]; hide != nil && v.Len() > 0 {
			return hide(v.String())
		}
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
			to[keyOf(field.Name)] = formOf(at, field.Name)
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
