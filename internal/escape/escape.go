// Package escape makes untrusted text safe to show on a terminal and to paste into
// a shell: names of processes, links, containers and labels, comments of rules,
// keys of files, messages of servers. It does not change printable text, and does
// not decide which names are valid.
package escape

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Hidden reports whether a character must not reach a terminal unescaped: it
// controls the terminal, changes the direction of text, or has no width.
func Hidden(r rune) bool {
	if r < utf8.RuneSelf {
		return r < ' ' || r == 0x7f
	}
	const noBreakSpace, brailleBlank = '\u00a0', '\u2800'
	return !unicode.IsPrint(r) && r != noBreakSpace || r == brailleBlank ||
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Line returns s as one line. It writes hidden characters, including line breaks
// and tabs, and bytes that are not UTF-8 as Go escape sequences.
func Line(s string) string { return visible(s, "") }

// Text is Line for text of several lines: line breaks and tabs stay.
func Text(s string) string { return visible(s, "\n\t") }

// visible escapes hidden characters, except those in keep.
func visible(s, keep string) string {
	hidden := func(r rune) bool { return r == utf8.RuneError || Hidden(r) && !strings.ContainsRune(keep, r) }
	first := strings.IndexFunc(s, hidden)
	if first < 0 {
		return s
	}
	var b strings.Builder
	b.WriteString(s[:first])
	for rest := s[first:]; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, rest[0])
		case r == utf8.RuneError || !hidden(r):
			b.WriteRune(r)
		default:
			b.WriteString(spelled(r))
		}
		rest = rest[size:]
	}
	return b.String()
}

// spelled returns the escape sequence of a character.
func spelled(r rune) string {
	switch {
	case r == '\n':
		return `\n`
	case r == '\t':
		return `\t`
	case r == '\r':
		return `\r`
	case r < utf8.RuneSelf:
		return fmt.Sprintf(`\x%02x`, r)
	case r <= 0xffff:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}
