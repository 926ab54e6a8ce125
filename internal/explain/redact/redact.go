// Package redact hides secrets in what people send to others: the texts that are known to be secret,
// wherever they occur, and what looks like a credential. It reads no files.
package redact

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"fairlead/internal/model"
	"fairlead/internal/model/gateway"
)

// shortest is the length from which a secret is hidden wherever it occurs, in bytes. Shorter ones
// would also hide other text, as would the ordinary words.
const shortest = 4

var ordinary = []string{"true", "false", "null", "none", "default", "host", "root"}

// Secrets are texts that must be hidden. The zero value has none. It is not safe for concurrent use.
type Secrets struct {
	known map[string]bool
}

// Add adds a secret. Each line of a secret with several lines, such as a private key, is one, too.
func (s *Secrets) Add(text string) {
	if s.known == nil {
		s.known = map[string]bool{}
	}
	for _, one := range append(strings.Split(text, "\n"), text) {
		one = strings.TrimSpace(one)
		frame := strings.HasPrefix(one, "-----") && !strings.Contains(one, "\n") // of PEM
		if len(one) < shortest || frame || slices.Contains(ordinary, one) {
			continue
		}
		s.known[one] = true
		if quoted, err := json.Marshal(one); err == nil {
			s.known[string(quoted[1:len(quoted)-1])] = true
		}
	}
}

// Value hides the secrets in a value, to which into points, and adds them. It knows those that the
// struct tag "secret" marks, and those of health checks. Values in maps and behind pointers change, too.
func (s *Secrets) Value(into any) { s.value(reflect.ValueOf(into).Elem(), "") }

func (s *Secrets) value(v reflect.Value, kind string) {
	if !v.CanSet() && v.Kind() != reflect.Pointer && v.Kind() != reflect.Map && v.Kind() != reflect.Slice {
		return
	}
	if c, is := v.Addr().Interface().(*model.Check); is {
		s.check(c)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			s.value(v.Elem(), kind)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				s.value(v.Field(i), cmp.Or(gateway.SecretOf(f), kind))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			s.value(v.Index(i), kind)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			e := reflect.New(v.Type().Elem()).Elem()
			e.Set(v.MapIndex(key))
			s.value(e, kind)
			v.SetMapIndex(key, e)
		}
	case reflect.String:
		v.SetString(s.text(kind, v.String()))
	}
}

// text returns a text with a kind of secret as people may see it, and adds the secret. The values of all
// headers are hidden: any name can have a credential.
func (s *Secrets) text(kind, text string) string {
	switch {
	case text == "" || kind == "":
		return text
	case kind == gateway.SecretURL:
		s.URL(text)
	case kind == gateway.SecretUser:
		_, secret, found := strings.Cut(text, ":")
		if !found {
			secret = text
		}
		s.Add(secret)
		s.Add(secret[strings.LastIndexByte(secret, ':')+1:]) // a digest follows its realm
	case kind == gateway.SecretHeaders:
		s.Add(text)
		_, credentials, _ := strings.Cut(text, " ") // after a scheme (RFC 9110, 11.4)
		s.Add(credentials)
		return gateway.Hidden
	case kind == gateway.SecretWhole, gateway.Shown(kind, "", text) != text:
		s.Add(text)
	}
	return gateway.Shown(kind, "", text)
}

// URL adds the secrets in a URL, or in a part of one: the password, or a name without one, and the values of
// all parameters.
func (s *Secrets) URL(text string) {
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		_, user, _ := strings.Cut(text[:at], "//")
		if name, password, found := strings.Cut(user, ":"); found {
			s.escaped(password)
		} else {
			s.escaped(name)
		}
	}
	_, query, _ := strings.Cut(text, "?")
	for _, part := range strings.Split(query, "&") {
		if name, value, found := strings.Cut(part, "="); found && credentialName().MatchString(name) {
			s.escaped(value)
		}
	}
}

// escaped adds a secret of a URL as it is, and unescaped.
func (s *Secrets) escaped(text string) {
	s.Add(text)
	if plain, err := url.PathUnescape(text); err == nil {
		s.Add(plain)
	}
}

// check hides the parts of a health check that can have credentials.
func (s *Secrets) check(c *model.Check) {
	for i := range c.Command {
		if i > 0 {
			c.Command[i] = s.text(gateway.SecretWhole, c.Command[i])
		}
	}
	c.Send, c.Expect = s.text(gateway.SecretWhole, c.Send), s.text(gateway.SecretWhole, c.Expect)
	c.Path = s.text(gateway.SecretURL, c.Path)
}

// Environment adds the values of variables, NAME=VALUE, whose names are those of credentials, and the
// passwords in URLs.
func (s *Secrets) Environment(variables []string) {
	for _, variable := range variables {
		name, value, _ := strings.Cut(variable, "=")
		if credentialName().MatchString(name) {
			s.Add(value)
		} else if strings.Contains(value, "://") {
			s.URL(value)
		}
	}
}

// JSON adds the values of the fields of a document whose names are those of credentials. It ignores a text
// that is no JSON.
func (s *Secrets) JSON(text []byte) {
	var v any
	if json.Unmarshal(text, &v) == nil {
		s.fields("", v)
	}
}

func (s *Secrets) fields(name string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, one := range v {
			s.fields(key, one)
		}
	case []any:
		for _, one := range v {
			s.fields(name, one)
		}
	case string:
		if credentialName().MatchString(name) {
			s.Add(v)
		} else if strings.Contains(v, "://") {
			s.URL(v)
		}
	}
}

// credential is a part of the names of what has credentials, for regular expressions.
const credential = `passw(?:or)?d|passwd|pwd|secret|token|api[._-]?key|access[._-]?key|private[._-]?key|credential`

// credentialName matches the names of variables, fields and parameters that have credentials.
var credentialName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)` + credential + `|auth|key$|hmac|signature|^sig$|pass$`)
})

// patterns find what looks like a credential. ${1} and ${2} stay.
var patterns = sync.OnceValue(func() []*regexp.Regexp {
	return []*regexp.Regexp{
		regexp.MustCompile(`()(?s:-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$))()`),
		regexp.MustCompile(`(://)[^\s"'@]+(@)`),
		regexp.MustCompile(`(fljoin1\.)[A-Za-z0-9._~+/=-]+()`),
		regexp.MustCompile(`((?i)\b(?:bearer|basic) +)[A-Za-z0-9._~+/-]*[0-9=][A-Za-z0-9._~+/=-]*()`),
		regexp.MustCompile(`()\$(?:2[abxy]?|apr1|1|5|6|y|argon2id?)\$[^\s"',]+()`),
		regexp.MustCompile(`(\{SHA\})[A-Za-z0-9+/=]+()`),
		regexp.MustCompile(`((?i)"?[A-Za-z0-9_.-]*(?:` + credential + `)[A-Za-z0-9_.-]*\\?"?\s*[=:]\s*\\?"?)[^\s"'&,\\()\[\]{}]+()`),
		regexp.MustCompile(`((?i)--?[A-Za-z0-9-]*(?:` + credential + `)[A-Za-z0-9-]*"?,?\s+"?)[^\s"',]+()`),
	}
})

// Hide returns a text without the secrets. The text is not changed.
func (s *Secrets) Hide(text []byte) []byte {
	all := make([]string, 0, len(s.known))
	for one := range s.known {
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), cmp.Compare(a, b)) })
	for _, one := range all { // a longer secret may contain a shorter one
		text = bytes.ReplaceAll(text, []byte(one), []byte(gateway.Hidden))
	}
	for _, pattern := range patterns() {
		text = pattern.ReplaceAll(text, []byte("${1}"+gateway.Hidden+"${2}"))
	}
	return text
}
