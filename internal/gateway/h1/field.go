package h1

import (
	"bytes"
	"errors"
	"fmt"
	"net/textproto"
	"strings"
)

// errMalformed is wrapped by the errors of the parsers.
var errMalformed = errors.New("malformed HTTP/1.1 message")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
}

// field is a header field with its canonical name.
type field struct{ key, value string }

// Classes of bytes: token (RFC 9110 5.6.2), value (RFC 9110 5.5 without control characters), path
// (bytes of a target that URL parsing leaves as they are).
const (
	isToken = 1 << iota
	isValue
	isPath
	isUpper
	isLower
)

// class has the classes of each byte.
var class = func() (t [256]uint8) {
	for c := range t {
		b := byte(c)
		if b >= ' ' && b != 0x7f || b == '\t' {
			t[c] |= isValue
		}
		digit, lower, upper := b >= '0' && b <= '9', b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z'
		switch {
		case digit:
			t[c] |= isToken | isPath
		case lower:
			t[c] |= isToken | isPath | isLower
		case upper:
			t[c] |= isToken | isPath | isUpper
		case strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0:
			t[c] |= isToken
		}
		if strings.IndexByte("-._~/", b) >= 0 {
			t[c] |= isPath
		}
	}
	return t
}()

// all returns true if s is not empty and all its bytes have the class.
func all(s string, want uint8) bool {
	for i := 0; i < len(s); i++ {
		if class[s[i]]&want == 0 {
			return false
		}
	}
	return s != ""
}

// validValue returns true if s can be a field's value.
func validValue(s string) bool { return s == "" || all(s, isValue) }

// canonical returns the canonical form of a field's name, or false if it is not a token.
func canonical(s string) (string, bool) {
	same, upper := true, true
	for i := 0; i < len(s); i++ {
		c := class[s[i]]
		if c&isToken == 0 {
			return "", false
		}
		if upper && c&isLower != 0 || !upper && c&isUpper != 0 {
			same = false
		}
		upper = s[i] == '-'
	}
	if same {
		return s, s != ""
	}
	return textproto.CanonicalMIMEHeaderKey(s), true
}

// headEnd returns the length of a head with its empty line, or 0 if the head is incomplete. The bytes
// before from were searched already. Lines end with LF, as net/http accepts them.
func headEnd(b []byte, from int) int {
	for i := from; ; {
		n := bytes.IndexByte(b[i:], '\n')
		if n < 0 {
			return 0
		}
		i += n + 1
		switch {
		case i < len(b) && b[i] == '\n':
			return i + 1
		case i+1 < len(b) && b[i] == '\r' && b[i+1] == '\n':
			return i + 2
		}
	}
}

// hasBareCR returns true if a CR is followed by another byte than LF (RFC 9112 2.2).
func hasBareCR(b []byte) bool {
	for {
		i := bytes.IndexByte(b, '\r')
		if i < 0 || i+1 == len(b) {
			return false
		}
		if b[i+1] != '\n' {
			return true
		}
		b = b[i+2:]
	}
}

// nextLine returns the first line of s without its end, and the rest. bare is true if CR is missing.
func nextLine(s string) (line, rest string, bare bool) {
	n := strings.IndexByte(s, '\n')
	if n < 0 {
		return s, "", true
	}
	line, rest = s[:n], s[n+1:]
	if n > 0 && line[n-1] == '\r' {
		return line[:n-1], rest, false
	}
	return line, rest, true
}

// parseFields appends the fields of s, which ends with an empty line. Folded lines (RFC 9112 5.2) and
// spaces before the colon are refused.
func parseFields(to []field, s string) ([]field, error) {
	for {
		var line string
		line, s, _ = nextLine(s)
		if line == "" {
			return to, nil
		}
		f, err := parseField(line)
		if err != nil {
			return nil, err
		}
		to = append(to, f)
	}
}

func parseField(line string) (field, error) {
	colon := strings.IndexByte(line, ':')
	if colon < 0 {
		return field{}, malformed("header line %.80q has no colon", line)
	}
	key, ok := canonical(line[:colon])
	if !ok {
		return field{}, malformed("header name %.80q", line[:colon])
	}
	value := trim(line[colon+1:])
	if !validValue(value) {
		return field{}, malformed("value of %s has control characters", key)
	}
	return field{key, value}, nil
}

// trim removes spaces and tabs at both ends.
func trim(s string) string {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for len(s) > 0 && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// hasToken returns true if a list of tokens has the token, in any case.
func hasToken(list, token string) bool {
	for list != "" {
		item, rest, _ := strings.Cut(list, ",")
		if equalFold(trim(item), token) {
			return true
		}
		list = rest
	}
	return false
}

// equalFold compares without the case of ASCII letters. strings.EqualFold also folds other letters, of
// which some equal ASCII letters.
func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := 0; i < len(a); i++ {
		x, y := a[i], b[i]
		if x != y && (x|0x20 != y|0x20 || class[x]&(isUpper|isLower) == 0) {
			return false
		}
	}
	return true
}

// parseLength parses a Content-Length.
func parseLength(s string) (int64, error) {
	if s == "" || len(s) > 18 {
		return 0, malformed("Content-Length %.40q", s)
	}
	var n int64
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, malformed("Content-Length %.40q", s)
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, nil
}
