package wire

import (
	"bytes"
	"errors"
	"fmt"
	"net/textproto"
	"strings"
)

// errMalformed is wrapped by the errors of the parsers.
var errMalformed = errors.New("malformed HTTP/1.1 message")

// Malformed returns an error about a message that no parser accepts.
func Malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
}

// Field is a header field with its canonical name.
type Field struct{ Key, Value string }

// Classes of bytes: token (RFC 9110 5.6.2), value (RFC 9110 5.5 without control characters), path
// (bytes of a target that URL parsing leaves as they are).
const (
	IsToken = 1 << iota
	isValue
	IsPath
	isUpper
	isLower
)

// Class has the classes of each byte.
var Class = func() (t [256]uint8) {
	for c := range t {
		b := byte(c)
		if b >= ' ' && b != 0x7f || b == '\t' {
			t[c] |= isValue
		}
		digit, lower, upper := b >= '0' && b <= '9', b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z'
		switch {
		case digit:
			t[c] |= IsToken | IsPath
		case lower:
			t[c] |= IsToken | IsPath | isLower
		case upper:
			t[c] |= IsToken | IsPath | isUpper
		case strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0:
			t[c] |= IsToken
		}
		if strings.IndexByte("-._~/", b) >= 0 {
			t[c] |= IsPath
		}
	}
	return t
}()

// All returns true if s is not empty and all its bytes have the class.
func All(s string, want uint8) bool {
	for i := 0; i < len(s); i++ {
		if Class[s[i]]&want == 0 {
			return false
		}
	}
	return s != ""
}

// ValidValue returns true if s can be a field's value.
func ValidValue(s string) bool { return s == "" || All(s, isValue) }

// canonical returns the canonical form of a field's name, or false if it is not a token.
func canonical(s string) (string, bool) {
	same, upper := true, true
	for i := 0; i < len(s); i++ {
		c := Class[s[i]]
		if c&IsToken == 0 {
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

// HeadEnd returns the length of a head with its empty line, or 0 if the head is incomplete. The bytes
// before from were searched already. Lines end with LF, as net/http accepts them.
func HeadEnd(b []byte, from int) int {
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

// HasBareCR returns true if a CR is followed by another byte than LF (RFC 9112 2.2).
func HasBareCR(b []byte) bool {
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

// NextLine returns the first line of s without its end, and the rest. bare is true if CR is missing.
func NextLine(s string) (line, rest string, bare bool) {
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

// ParseFields appends the fields of s, which ends with an empty line. Folded lines (RFC 9112 5.2) and
// spaces before the colon are refused.
func ParseFields(to []Field, s string) ([]Field, error) {
	for {
		var line string
		line, s, _ = NextLine(s)
		if line == "" {
			return to, nil
		}
		f, err := ParseField(line)
		if err != nil {
			return nil, err
		}
		to = append(to, f)
	}
}

// ParseField returns the field of a line without its end.
func ParseField(line string) (Field, error) {
	colon := strings.IndexByte(line, ':')
	if colon < 0 {
		return Field{}, Malformed("header line %.80q has no colon", line)
	}
	key, ok := canonical(line[:colon])
	if !ok {
		return Field{}, Malformed("header name %.80q", line[:colon])
	}
	value := Trim(line[colon+1:])
	if !ValidValue(value) {
		return Field{}, Malformed("value of %s has control characters", key)
	}
	return Field{key, value}, nil
}

// Trim removes spaces and tabs at both ends.
func Trim(s string) string {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for len(s) > 0 && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// HasToken returns true if a list of tokens has the token, in any case.
func HasToken(list, token string) bool {
	for list != "" {
		item, rest, _ := strings.Cut(list, ",")
		if EqualFold(Trim(item), token) {
			return true
		}
		list = rest
	}
	return false
}

// EqualFold compares without the case of ASCII letters. strings.EqualFold also folds other letters, of
// which some equal ASCII letters.
func EqualFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := 0; i < len(a); i++ {
		x, y := a[i], b[i]
		if x != y && (x|0x20 != y|0x20 || Class[x]&(isUpper|isLower) == 0) {
			return false
		}
	}
	return true
}

// ParseLength parses a Content-Length.
func ParseLength(s string) (int64, error) {
	if s == "" || len(s) > 18 {
		return 0, Malformed("Content-Length %.40q", s)
	}
	var n int64
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, Malformed("Content-Length %.40q", s)
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, nil
}

// HopByHop returns true for the fields of RFC 9110 7.6.1, for those that frame the message, and for
// those of an upgrade to HTTP/2 (RFC 7540 3.2.1), which is never forwarded.
func HopByHop(key string) bool {
	switch key {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te",
		"Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Host", "Http2-Settings":
		return true
	}
	return false
}

// Named returns true if the Connection fields name the key.
func Named(connection []string, key string) bool {
	for _, c := range connection {
		if HasToken(c, key) {
			return true
		}
	}
	return false
}

// TrailerAllowed refuses the fields that frame, route or authenticate a message.
func TrailerAllowed(key string) bool {
	switch key {
	case "Authorization", "Content-Encoding", "Content-Range", "Content-Type", "Cookie", "Expect", "Set-Cookie":
		return false
	}
	return !HopByHop(key)
}
