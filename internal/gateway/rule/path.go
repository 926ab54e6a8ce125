package rule

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// CleanPath returns the form of a request's escaped path that rules match and that the
// backend gets. Escapes are in upper case; those of unreserved characters are decoded
// (RFC 3986, 6.2.2); those of reserved characters stay, so that %2F is no separator.
// Then dot segments and repeated slashes go, and a slash at the end stays. The path "*"
// of OPTIONS stays as it is. Returns an error if the path has a fragment, a query, or an
// escape without two hexadecimal digits: the client gets the status 400.
func CleanPath(escaped string) (string, error) {
	normal, err := NormalPath(escaped)
	if err != nil || !strings.Contains(normal, "//") && !strings.Contains(normal, "/.") {
		return normal, err
	}
	clean := path.Clean(normal)
	if strings.HasSuffix(normal, "/") && clean != "/" {
		clean += "/"
	}
	return clean, nil
}

// NormalPath is CleanPath, but dot segments and repeated slashes stay.
func NormalPath(escaped string) (string, error) {
	if escaped == "*" {
		return escaped, nil
	}
	if i := strings.IndexAny(escaped, "#?"); i >= 0 {
		return "", fmt.Errorf("clean path: it has the character %q", escaped[i])
	}
	normal, ok := normalise(escaped)
	if !ok {
		return "", errors.New("clean path: a percent sign is not followed by two hexadecimal digits")
	}
	if !strings.HasPrefix(normal, "/") {
		normal = "/" + normal
	}
	return normal, nil
}

const upperHex = "0123456789ABCDEF"

// normalise writes the path in one of its equivalent forms. A percent sign that begins
// no escape becomes %25, and ok is false.
func normalise(s string) (normal string, ok bool) {
	same := true
	for i := 0; i < len(s) && same; i++ {
		same = isPlain(s[i])
	}
	if same {
		return s, true
	}
	var b strings.Builder
	b.Grow(len(s) + 8)
	ok = true
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case isPlain(c):
			b.WriteByte(c)
			continue
		case c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			c = unhex(s[i+1])<<4 | unhex(s[i+2])
			i += 2
		case c == '%':
			ok = false
		}
		if isUnreserved(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', upperHex[c>>4], upperHex[c&15]})
		}
	}
	return b.String(), ok
}

// isPlain reports whether the character stays as it is in a normal path.
func isPlain(c byte) bool { return isUnreserved(c) || isReserved(c) }

func isUnreserved(c byte) bool {
	return isLetter(c) || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f' }

// pathV3 takes a path or the beginning of a path, escaped or not.
func pathV3(how comparison) func([]string) ([]test, error) {
	return func(args []string) ([]test, error) { return paths(args, how, false) }
}

// pathV2 takes templates of paths or of beginnings of paths.
func pathV2(how comparison) func([]string) ([]test, error) {
	return func(args []string) ([]test, error) { return paths(args, how, true) }
}

// paths returns one test: of the escaped path, unless a template needs the decoded one.
func paths(args []string, how comparison, templates bool) ([]test, error) {
	t := test{subject: ofPath}
	for i, a := range args {
		if !strings.HasPrefix(a, "/") {
			return nil, badArgument(i, "the path %q does not begin with a slash", a)
		}
		if templates && strings.ContainsAny(a, "{}") {
			t.subject = ofDecodedPath
		}
	}
	for i, a := range args {
		v := value{how: how, text: a}
		var err error
		if templates {
			if v, err = templateValue(i, a, "[^/]+", how); err != nil {
				return nil, err
			}
		}
		if v.how != pattern {
			v.text, _ = normalise(a)
		}
		if v.how != pattern && t.subject == ofDecodedPath {
			v.text = decodePath(v.text)
		}
		t.values = append(t.values, v)
	}
	return []test{t}, nil
}

func pathRegexp(args []string) ([]test, error) {
	v, err := regexpValue(0, args[0])
	return []test{{subject: ofDecodedPath, values: []value{v}}}, err
}
