package escape

import "strings"

// Error returns the text of an error with one line for each part of
// errors.Join. A line break that comes from anywhere else, such as a name, is
// escaped.
func Error(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	var parts []error
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		parts = e.Unwrap()
	case interface{ Unwrap() error }:
		parts = []error{e.Unwrap()}
	}
	var b strings.Builder
	joined := isJoined(text, parts)
	for i, part := range parts {
		if part == nil {
			continue
		}
		before, after, found := strings.Cut(text, part.Error())
		if !found { // the error's text does not contain that of the part
			continue
		}
		if joined && i > 0 {
			before = ""
			b.WriteByte('\n')
		}
		b.WriteString(Line(before) + Error(part))
		text = after
	}
	return b.String() + Line(text)
}

// isJoined reports whether the text is that of errors.Join.
func isJoined(text string, parts []error) bool {
	texts := make([]string, len(parts))
	for i, part := range parts {
		if part == nil {
			return false
		}
		texts[i] = part.Error()
	}
	return len(parts) > 0 && strings.Join(texts, "\n") == text
}
