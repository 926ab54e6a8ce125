package rule

import (
	"regexp"
	"strings"
)

// templateValue compiles a template of the v2 syntax: a text in which {name} stands for
// the default pattern and {name:PATTERN} for the pattern. It matches whole texts, or their
// beginning if the comparison is prefix. A text without braces is compared as it is.
func templateValue(index int, text, defaultPattern string, how comparison) (value, error) {
	var b strings.Builder
	b.WriteByte('^')
	rest := text
	for {
		begin := strings.IndexAny(rest, "{}")
		if begin < 0 {
			break
		}
		end := closingBrace(rest, begin)
		if end < 0 {
			return value{}, badArgument(index, "the braces of %q are not in pairs", text)
		}
		name, pattern, ok := strings.Cut(rest[begin+1:end], ":")
		if !ok {
			pattern = defaultPattern
		}
		if name == "" || pattern == "" {
			return value{}, badArgument(index, "%q has braces without a name or a pattern: write {name:PATTERN}", text)
		}
		b.WriteString(regexp.QuoteMeta(rest[:begin]))
		b.WriteString("(?:" + pattern + ")")
		rest = rest[end+1:]
	}
	if rest == text {
		return value{how: how, text: text}, nil
	}
	b.WriteString(regexp.QuoteMeta(rest))
	if how == equal {
		b.WriteByte('$')
	}
	return regexpValue(index, b.String())
}

// closingBrace returns the offset of the brace that closes the one at the offset, or -1.
func closingBrace(s string, open int) int {
	level := 0
	for i := open; i < len(s) && s[open] == '{'; i++ {
		switch s[i] {
		case '{':
			level++
		case '}':
			if level--; level == 0 {
				return i
			}
		}
	}
	return -1
}

// template is an opening brace and a name, as in {host:.+}. No quantifier of a regular
// expression looks so, but classes such as \p{Greek} and \x{10FFFF} do.
var template = regexp.MustCompile(`(^[pPx]?|[^pPx]|[^\\][pPx])\{[A-Za-z_]`)

// hasTemplate reports whether the argument is most likely a template of v2.
func hasTemplate(text string) bool { return template.MatchString(text) }
