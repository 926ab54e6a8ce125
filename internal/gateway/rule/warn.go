package rule

import (
	"fmt"
	"net"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
)

// warn returns what the matcher most likely does not do as its author meant.
func (m *matcher) warn(syntax string) []string {
	var warnings []string
	say := func(format string, args ...any) {
		warnings = append(warnings, m.String()+" "+fmt.Sprintf(format, args...))
	}
	for i, a := range m.args {
		switch m.kind.name {
		case "Host", "HostHeader", "HostSNI":
			m.warnHost(a, m.tests[0].values[i], say)
		case "Path", "PathPrefix":
			warnPath(a, say)
		case "HostRegexp", "HostSNIRegexp":
			if v := m.tests[0].values[i]; syntax == "v3" && hasUpper(v) {
				say("never matches a letter in upper case: hosts are compared in lower case")
			}
		case "Header", "Headers", "HeaderRegexp", "HeadersRegexp":
			if i%2 == 0 && strings.EqualFold(a, "Host") {
				say("never matches: the host is no header here; use Host")
			}
		}
		if syntax == "v3" && m.kind.templates && m.kind.name != "Host" && hasTemplate(a) {
			say("has a template of v2, which v3 compares literally: set ruleSyntax to v2")
		}
	}
	return warnings
}

// warnHost reports names that no request can have as its host.
func (m *matcher) warnHost(a string, v value, say func(string, ...any)) {
	if v.how == always || isHost(v.text) {
		return
	}
	name, _, err := net.SplitHostPort(a)
	switch {
	case strings.Contains(a, "{"):
		say("never matches: %s takes no template; use %s", m.kind.name, strings.TrimSuffix(m.kind.name, "Header")+"Regexp")
	case strings.Contains(a, "/"):
		say("never matches: write the name without a scheme and a path")
	case err == nil:
		say("never matches: hosts are compared without their port; write %s(`%s`)", m.kind.name, name)
	case strings.Contains(a, "*"):
		say("never matches: a wildcard is * alone, or the whole first label in the syntax v3")
	default:
		say("never matches: %q is no host name", a)
	}
}

// warnPath reports paths that no request has after CleanPath.
func warnPath(a string, say func(string, ...any)) {
	switch {
	case strings.Contains(a, "?"):
		say("never matches: the query is no part of the path; use Query")
	case strings.Contains(a, "#"):
		say("never matches: a request has no fragment")
	case strings.Contains(a, "//"), strings.Contains(a, "/./"), strings.Contains(a, "/../"):
		say("never matches: paths are compared without repeated slashes and dot segments")
	}
}

// hasUpper reports whether a regular expression has literal letters in upper case.
func hasUpper(v value) bool {
	re, err := syntax.Parse(v.text, syntax.Perl)
	return err == nil && literalUpper(re)
}

func literalUpper(re *syntax.Regexp) bool {
	if re.Op == syntax.OpLiteral && re.Flags&syntax.FoldCase == 0 {
		if slices.ContainsFunc(re.Rune, unicode.IsUpper) {
			return true
		}
	}
	return slices.ContainsFunc(re.Sub, literalUpper)
}
