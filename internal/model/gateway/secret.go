package gateway

import (
	"net/url"
	"reflect"
	"regexp"
	"strings"
)

// Hidden is what is shown instead of a secret.
const Hidden = "(hidden)"

// The values of the struct tag "secret", which marks the fields with credentials. A field that is a
// list has a secret in each element.
const (
	// SecretWhole is a credential. In a map, each value is one.
	SecretWhole = "whole"
	// SecretUser is a line of htpasswd or htdigest: all but the name is hidden.
	SecretUser = "user"
	// SecretKey is a private key. The name of its file is shown, its text is hidden.
	SecretKey = "key"
	// SecretURL is a URL or a part of one; see ShownURL.
	SecretURL = "url"
	// SecretHeaders is a map of header fields: the values of those that carry credentials are hidden.
	SecretHeaders = "headers"
)

// credential matches the names of headers and parameters that carry credentials.
var credential = regexp.MustCompile(`(?i)auth|cookie|token|secret|passw|pwd|signature|credential|session|api.?key|access.?key|^(api)?key$|^sig$`)

// Shown returns a value of a field as people may see it. kind is the field's tag "secret", key the key of
// a value in a map.
func Shown(kind, key, value string) string {
	switch {
	case value == "":
		return ""
	case kind == SecretWhole, kind == SecretKey && strings.Contains(value, "-----BEGIN"),
		kind == SecretHeaders && credential.MatchString(key):
		return Hidden
	case kind == SecretUser:
		name, _, found := strings.Cut(value, ":")
		if !found {
			return Hidden
		}
		return name + ":" + Hidden
	case kind == SecretURL:
		return ShownURL(value)
	}
	return value
}

// ShownURL hides the password in a URL (RFC 3986, 3.2.1), and the values of the parameters whose names
// are those of credentials. It also takes text that is no valid URL.
func ShownURL(text string) string {
	if _, err := url.Parse(text); err != nil {
		text = withoutPassword(text)
	}
	rest, query, hasQuery := strings.Cut(text, "?")
	scheme, after, found := strings.Cut(rest, "//")
	if !found {
		scheme, after = "", rest
	} else {
		scheme += "//"
	}
	authority, path := after, ""
	if at := strings.IndexByte(after, '/'); at >= 0 {
		authority, path = after[:at], after[at:]
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		if user, _, has := strings.Cut(authority[:at], ":"); has {
			authority = user + ":" + Hidden + authority[at:]
		}
	}
	shown := scheme + authority + path
	if hasQuery {
		shown += "?" + shownQuery(query)
	}
	return shown
}

// withoutPassword hides what may be a password in text that is no valid URL: its password may have
// characters that end the authority of a URL.
func withoutPassword(text string) string {
	from := 0
	if at := strings.Index(text, "//"); at >= 0 {
		from = at + len("//")
	}
	end := max(strings.LastIndexByte(text, '@'), from)
	if colon := strings.IndexByte(text[from:end], ':'); colon >= 0 {
		return text[:from+colon+1] + Hidden + text[end:]
	}
	return text
}

// shownQuery hides the values of parameters that carry credentials.
func shownQuery(query string) string {
	parts := strings.Split(query, "&")
	for i, part := range parts {
		name, _, has := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(name); has && (err != nil || credential.MatchString(plain)) {
			parts[i] = name + "=" + Hidden
		}
	}
	return strings.Join(parts, "&")
}

// SecretOf returns the kind of secret that a field has, empty if it has none.
func SecretOf(field reflect.StructField) string { return field.Tag.Get("secret") }

// HasSecrets reports whether a value of the type can contain a secret that ShownURL does not hide. A map
// of texts can: users choose what it has.
func HasSecrets(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Map:
		return t.Elem().Kind() == reflect.String || HasSecrets(t.Elem())
	case reflect.Pointer, reflect.Slice:
		return HasSecrets(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if kind := SecretOf(f); kind != "" && kind != SecretURL || HasSecrets(f.Type) {
				return true
			}
		}
	}
	return false
}
