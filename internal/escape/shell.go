package escape

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// plain are the characters that need no quotes in a shell word. It has no tilde,
// which shells expand, and no "=", which zsh expands at the beginning of a word.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@%+"

// Shell returns s as one shell word: unquoted, in single quotes, or, if it has
// hidden characters, as $'…', which bash, zsh, ksh and POSIX.1-2024 shells
// support. Older shells read $'…' as another word, but never run a part of it,
// because it has no quotes inside.
func Shell(s string) string {
	switch {
	case s != "" && strings.Trim(s, plain+"=") == "" && s[0] != '=':
		return s
	case Line(s) == s:
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder
	for rest := s; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		if r == utf8.RuneError && size == 1 || r == '\'' || r == '\\' || Hidden(r) {
			for _, c := range []byte(rest[:size]) {
				fmt.Fprintf(&b, `\%03o`, c)
			}
		} else {
			b.WriteString(rest[:size])
		}
		rest = rest[size:]
	}
	return "$'" + b.String() + "'"
}
