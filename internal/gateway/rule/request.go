package rule

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Request is what rules match. Those of TCP routers match Host, ALPN and Client only.
// A Request is for one goroutine at a time: it keeps what matchers derive from it.
type Request struct {
	Method string
	// Host is in lower case, without a port, a trailing dot, or the brackets of an IPv6
	// address. For TCP it is the server name of the TLS handshake (SNI), or empty.
	Host string
	// Path is the path that CleanPath returned.
	Path string
	// RawQuery is the query without the question mark.
	RawQuery string
	Header   http.Header
	// Client is the client's address without a zone; an IPv4 address is not mapped.
	Client netip.Addr
	// ALPN has the protocols that the client offers in the TLS handshake.
	ALPN []string

	decoded   string
	isDecoded bool
	query     url.Values
}

// parameters returns the parsed query. Like net/url, it leaves out what is malformed.
func (q *Request) parameters() url.Values {
	if q.query == nil {
		q.query, _ = url.ParseQuery(q.RawQuery)
	}
	return q.query
}

// decodedPath returns the path for regular expressions: decoded, except for reserved
// characters and the percent sign, so that %2F is no separator.
func (q *Request) decodedPath() string {
	if !q.isDecoded {
		q.decoded, q.isDecoded = decodePath(q.Path), true
	}
	return q.decoded
}

// decodePath decodes the escapes of a clean path, except those of reserved characters
// (RFC 3986, 2.2) and of the percent sign.
func decodePath(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c := unhex(s[i+1])<<4 | unhex(s[i+2]); c != '%' && !isReserved(c) {
				b.WriteByte(c)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func isReserved(c byte) bool { return strings.IndexByte(":/?#[]@!$&'()*+,;=", c) >= 0 }

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return (c | 0x20) - 'a' + 10
}
