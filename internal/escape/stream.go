package escape

import (
	"io"
	"regexp"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Writer returns what writes text of several lines to w as Text returns it. A
// character may be split over two writes.
func Writer(w io.Writer) io.Writer { return &stream{to: w, escape: Text} }

// JSON returns what writes JSON to w: hidden characters, which stand in strings
// only, become \u sequences, so that readers of JSON get what was written.
func JSON(w io.Writer) io.Writer { return &stream{to: w, escape: jsonText} }

// Styled is Writer, but lets the given styles of a terminal pass (the numbers of
// the sequence that ECMA-48 calls SGR), e.g. "1;31". A style stands within one write.
func Styled(w io.Writer, styles ...string) io.Writer {
	own := regexp.MustCompile("\x1b\\[(?:" + strings.Join(styles, "|") + ")m")
	return &stream{to: w, escape: func(s string) string {
		var b strings.Builder
		at := 0
		for _, found := range own.FindAllStringIndex(s, -1) {
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
	// begun is the beginning of a character whose rest has not come yet.
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

// jsonText spells hidden characters as JSON does.
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
