package rule

import (
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"fairlead/internal/expression"
)

// subject is the part of a request that a test looks at.
type subject byte

const (
	ofHost subject = iota
	ofPath
	ofDecodedPath
	ofMethod
	ofHeader
	ofQuery
	// ofFirstQuery is the first value of a parameter.
	ofFirstQuery
	ofALPN
	ofClient
)

// test compares a part of a request with values. It succeeds if one of them matches.
type test struct {
	subject subject
	// key is the name of a header in its canonical form, or of a query's parameter.
	key      string
	values   []value
	prefixes []netip.Prefix
}

// comparison says how a value is compared.
type comparison byte

const (
	// always matches, also what is empty.
	always comparison = iota
	equal
	prefix
	// wildcard matches one label and the text, which begins with a dot.
	wildcard
	pattern
)

// value is what a test compares with.
type value struct {
	how  comparison
	text string
	// re is the compiled text, nil in a rule that Read has returned; size are about its instructions.
	re   *regexp.Regexp
	size int
}

// match has no dynamic calls, so that a request on the stack stays there.
func (t *test) match(q *Request) bool {
	switch t.subject {
	case ofHost:
		return t.matchOne(q.Host)
	case ofPath:
		return t.matchOne(q.Path)
	case ofDecodedPath:
		return t.matchOne(q.decodedPath())
	case ofMethod:
		return t.matchOne(q.Method)
	case ofHeader:
		return t.matchAny(q.Header[t.key])
	case ofQuery:
		return t.matchAny(q.parameters()[t.key])
	case ofFirstQuery:
		values := q.parameters()[t.key]
		return len(values) > 0 && t.matchOne(values[0])
	case ofALPN:
		return t.matchAny(q.ALPN)
	}
	client := q.Client.Unmap()
	for _, p := range t.prefixes {
		if p.Contains(client) {
			return true
		}
	}
	return false
}

func (t *test) matchAny(texts []string) bool {
	for _, s := range texts {
		if t.matchOne(s) {
			return true
		}
	}
	return false
}

func (t *test) matchOne(s string) bool {
	for i := range t.values {
		if t.values[i].match(s) {
			return true
		}
	}
	return false
}

func (v *value) match(s string) bool {
	switch v.how {
	case equal:
		return s == v.text
	case prefix:
		return strings.HasPrefix(s, v.text)
	case wildcard:
		dot := strings.IndexByte(s, '.')
		return dot > 0 && s[dot:] == v.text
	case pattern:
		return v.re.MatchString(s)
	}
	return true
}

func method(args []string) ([]test, error) {
	t := test{subject: ofMethod}
	for _, a := range args {
		t.values = append(t.values, value{how: equal, text: strings.ToUpper(a)})
	}
	return []test{t}, nil
}

// headers compares one of a header's values with a text, for each pair.
func headers(args []string) ([]test, error) {
	var tests []test
	for pair := range slices.Chunk(args, 2) {
		tests = append(tests, test{subject: ofHeader, key: http.CanonicalHeaderKey(pair[0]),
			values: []value{{how: equal, text: pair[1]}}})
	}
	return tests, nil
}

// headersRegexp matches one of a header's values with an unanchored regular expression,
// for each pair.
func headersRegexp(args []string) ([]test, error) {
	var tests []test
	for i := 0; i < len(args); i += 2 {
		v, err := regexpValue(i+1, args[i+1])
		if err != nil {
			return nil, err
		}
		tests = append(tests, test{subject: ofHeader, key: http.CanonicalHeaderKey(args[i]), values: []value{v}})
	}
	return tests, nil
}

// clientIP takes addresses and prefixes.
func clientIP(args []string) ([]test, error) {
	t := test{subject: ofClient}
	for i, a := range args {
		p, err := netip.ParsePrefix(a)
		if addr, e := netip.ParseAddr(a); e == nil {
			addr = addr.Unmap()
			p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return nil, badArgument(i, "%q is neither an IP address nor a prefix such as 10.0.0.0/8", a)
		}
		t.prefixes = append(t.prefixes, p.Masked())
	}
	return []test{t}, nil
}

// alpn takes protocols. That of ACME (RFC 8737) belongs to the gateway itself.
func alpn(args []string) ([]test, error) {
	t := test{subject: ofALPN}
	for i, a := range args {
		if a == "acme-tls/1" {
			return nil, badArgument(i, "acme-tls/1 is the gateway's own protocol: leave it out")
		}
		t.values = append(t.values, value{how: equal, text: a})
	}
	return []test{t}, nil
}

// regexpValue checks the argument. Rule.compile compiles it.
func regexpValue(index int, text string) (value, error) {
	size, err := expression.Size(text)
	if err != nil {
		return value{}, badArgument(index, "%v", err)
	}
	return value{how: pattern, text: text, size: size}, nil
}
