package traefik

import (
	"fmt"
	"os"
	"strings"
	"text/template"
)

// functions are those of templates in default rules and files. Traefik has all of the
// sprig library; these are the ones in use, with sprig's order of arguments.
var functions = template.FuncMap{
	"normalize":  normalize,
	"env":        os.Getenv,
	"lower":      strings.ToLower,
	"upper":      strings.ToUpper,
	"trim":       strings.TrimSpace,
	"quote":      func(s string) string { return fmt.Sprintf("%q", s) },
	"replace":    func(from, to, s string) string { return strings.ReplaceAll(s, from, to) },
	"trimPrefix": func(prefix, s string) string { return strings.TrimPrefix(s, prefix) },
	"trimSuffix": func(suffix, s string) string { return strings.TrimSuffix(s, suffix) },
	"trimAll":    func(cut, s string) string { return strings.Trim(s, cut) },
	"contains":   func(part, s string) bool { return strings.Contains(s, part) },
	"hasPrefix":  func(prefix, s string) bool { return strings.HasPrefix(s, prefix) },
	"hasSuffix":  func(suffix, s string) bool { return strings.HasSuffix(s, suffix) },
	"splitList":  func(sep, s string) []string { return strings.Split(s, sep) },
	"join":       func(sep string, s []string) string { return strings.Join(s, sep) },
	"list":       func(s ...any) []any { return s },
	"first":      func(s []string) string { return s[0] },
	"last":       func(s []string) string { return s[len(s)-1] },
	"default":    orDefault,
	"coalesce":   coalesce,
	"until":      until,
}

// orDefault returns a value, or the default if the value is empty.
func orDefault(value string, given ...any) any {
	if len(given) == 0 || given[0] == nil || given[0] == "" {
		return value
	}
	return given[0]
}

func coalesce(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// The limits of templates, so that a mistake in a file does not take all memory.
const (
	mostUntil    = 100_000
	mostExpanded = 32 << 20
)

// until returns the integers from 0 to n-1.
func until(n int) (list []int, err error) {
	if n > mostUntil {
		return nil, fmt.Errorf("until %d: want at most %d", n, mostUntil)
	}
	for i := range n {
		list = append(list, i)
	}
	return list, nil
}

// limited is a text of at most mostExpanded bytes.
type limited struct{ strings.Builder }

// Write implements io.Writer.
func (l *limited) Write(text []byte) (int, error) {
	if l.Len()+len(text) > mostExpanded {
		return 0, fmt.Errorf("the result has more than %d bytes", mostExpanded)
	}
	return l.Builder.Write(text)
}

// parseTemplate parses a template with the functions above.
func parseTemplate(name, text string) (*template.Template, error) {
	t, err := template.New(name).Funcs(functions).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("parse the template: %w", err)
	}
	return t, nil
}

// execute returns the text that a template makes of a value.
func execute(t *template.Template, value any) (string, error) {
	var text limited
	if err := t.Execute(&text, value); err != nil {
		return "", fmt.Errorf("execute the template: %w", err)
	}
	return text.String(), nil
}
