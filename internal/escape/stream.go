package escape

import (
	"io"
	"regexp"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Writer returns a writer that escapes text of several lines with Text and writes
// it to w. A character may be split over two writes.
func Writer(w io.Writer) io.Writer { return &stream{to: w, escape: Text} }

// JSON returns a writer for JSON text: hidden characters, which occur only in
// strings, become \u sequences, so that JSON parsers get the original strings.
func JSON(w io.Writer) io.Writer { return &stream{to: w, escape: jsonText} }

// Styled is like Writer, but does not escape the given terminal styles: the numbers
// of the ECMA-48 sequence SGR, e.g. "1;31". A style must not be split over two
// writes.
func Styled(w io.Writer, styles ...string) io.Writer {
	allowed := regexp.MustCompile("\x1b\\[(?:" + strings.Join(styles, "|") + ")m")
	return &stream{to: w, escape: func(s string) string {
		var b strings.Builder
		at := 0
		for _, found := range allowed.FindAllStringIndex(s, -1) {
			b.WriteString(Text(s[at:found[0]]) + s[found[0]:found[1]])
			at = found[1]
		}
		return b.String() + Text(s[at:])
	}}
}

// stream escapes what is written.
type stream struct {
	to     io.Writer
	escape func(string) string
	// begun is the beginning of a character whose rest was not yet written.
	begun []byte
}

// Write implements io.Writer.
func (s *stream) Write(p []byte) (int, error) {
	all := append(s.begun, p...)
	whole := len(all)
	for back := 1; back < utf8.UTFMax && back <= len(all); back++ {
		if c := all[len(all)-back]; utf8.RuneStart(c) {
			if !utf8.FullRune(all[len(all)-back:]) {
				whole = len(all) - back
			}
			break
		}
	}
	s.begun = append([]byte(nil), all[whole:]...)
	if _, err := io.WriteString(s.to, s.escape(string(all[:whole]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// jsonText writes hidden characters as JSON escape sequences.
func jsonText(s string) string {
	var b strings.Builder
	at := 0
	for i, r := range s {
		if !Hidden(r) || r == '\n' || r == '\t' {
			continue
		}
		b.WriteString(s[at:i])
		for _, unit := range utf16.AppendRune(nil, r) {
			b.WriteString(`\u` + hex4(unit))
		}
		at = i + utf8.RuneLen(r)
	}
	return b.String() + s[at:]
}

// hex4 writes four hexadecimal digits.
func hex4(n uint16) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[n>>12], digits[n>>8&15], digits[n>>4&15], digits[n&15]})
}
