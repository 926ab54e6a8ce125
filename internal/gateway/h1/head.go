package h1

import (
	"bufio"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"fairlead/internal/gateway/h1/wire"

	"golang.org/x/net/http/httpguts"
)

// refusal is an error that the client gets as a response.
type refusal struct {
	status int
	reason string
}

// proxySignature is what a PROXY header of version 2 begins with, behind two empty lines.
const proxySignature = "\x00\r\nQUIT\n"

// errProxyHeader answers a PROXY header of a peer that is not trusted: it is data.
var errProxyHeader = &refusal{http.StatusBadRequest, "a PROXY header is not accepted from this address"}

func (r *refusal) Error() string { return r.reason }

// parse parses a head into c.request. Common requests are parsed here; all others by http.ReadRequest,
// so that both accept the same (see FuzzHead).
func (c *conn) parse(text string) error {
	*c.request = *c.blank
	fast, err := c.parseCommon(text)
	if err == nil && !fast {
		err = c.parseUncommon(text)
	}
	if err != nil {
		return err
	}
	r := c.request
	r.RemoteAddr, r.TLS = c.remote, c.tls
	c.setBody()
	return nil
}

// parseCommon parses a head with a plain path, CRLF at the end of all lines, and no field that needs
// special treatment. It returns false if the head is of another kind.
func (c *conn) parseCommon(text string) (bool, error) {
	line, rest, bare := wire.NextLine(text)
	if bare || !c.parseRequestLine(line) {
		return false, nil
	}
	fields := c.fields[:0]
	for {
		line, rest, bare = wire.NextLine(rest)
		if bare {
			return false, nil
		}
		if line == "" {
			break
		}
		f, err := wire.ParseField(line)
		if err != nil {
			return false, nil
		}
		fields = append(fields, f)
	}
	c.fields = fields
	return c.takeFields(fields)
}

// parseRequestLine accepts "METHOD /path?query HTTP/1.x" if URL parsing would leave the path as it is.
func (c *conn) parseRequestLine(line string) bool {
	method, rest, _ := strings.Cut(line, " ")
	target, proto, _ := strings.Cut(rest, " ")
	if !wire.All(method, wire.IsToken) || method == "CONNECT" || len(target) == 0 || target[0] != '/' {
		return false
	}
	r := c.request
	switch proto {
	case "HTTP/1.1":
		r.ProtoMinor = 1
	case "HTTP/1.0":
	default:
		return false
	}
	path, query := target, ""
	end := 0
	for end < len(target) && wire.Class[target[end]]&wire.IsPath != 0 {
		end++
	}
	if end < len(target) {
		if target[end] != '?' || end+1 == len(target) {
			return false
		}
		path, query = target[:end], target[end+1:]
		for i := 0; i < len(query); i++ {
			if query[i] <= ' ' || query[i] >= 0x7f {
				return false
			}
		}
	}
	c.url = url.URL{Path: path, RawQuery: query}
	r.Method, r.URL, r.RequestURI, r.Proto, r.ProtoMajor = method, &c.url, target, proto, 1
	return true
}

// takeFields sets the request's header and how its body is framed.
func (c *conn) takeFields(fields []wire.Field) (bool, error) {
	r := c.request
	if len(c.header) > 64 {
		c.header = http.Header{}
	}
	clear(c.header)
	if cap(c.values) < len(fields) {
		c.values = make([]string, max(16, len(fields)))
	}
	hosts, keepAlive, hasLength := 0, false, false
	for i, f := range fields {
		switch f.Key {
		case "Host":
			hosts++
			r.Host = f.Value
			continue
		case "Content-Length":
			n, err := wire.ParseLength(f.Value)
			if err != nil || hasLength {
				return false, nil
			}
			r.ContentLength, hasLength = n, true
		case "Transfer-Encoding", "Trailer", "Pragma":
			return false, nil
		case "Connection":
			r.Close = r.Close || wire.HasToken(f.Value, "close")
			keepAlive = keepAlive || wire.HasToken(f.Value, "keep-alive")
		}
		if old, ok := c.header[f.Key]; ok {
			c.header[f.Key] = append(old, f.Value)
			continue
		}
		c.values[i] = f.Value
		c.header[f.Key] = c.values[i : i+1 : i+1]
	}
	if r.ProtoMinor == 0 && !keepAlive {
		r.Close = true
	}
	r.Header = c.header
	return true, checkHost(hosts, r)
}

func checkHost(hosts int, r *http.Request) error {
	switch {
	case hosts > 1:
		return &refusal{http.StatusBadRequest, "more than one Host field"}
	case hosts == 0 && r.ProtoAtLeast(1, 1) && r.Method != "CONNECT":
		return &refusal{http.StatusBadRequest, "no Host field"}
	case r.Host == "" && hosts > 0, !httpguts.ValidHostHeader(r.Host):
		return &refusal{http.StatusBadRequest, "the Host field is malformed"}
	}
	return nil
}

// parseUncommon parses a head with http.ReadRequest, and refuses what net/http's server refuses, and any
// request whose framing is ambiguous (RFC 9112 6.1).
func (c *conn) parseUncommon(text string) error {
	parsed, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	seen := scan(text)
	switch {
	case strings.HasPrefix(text, "PROXY "), strings.HasPrefix(text, proxySignature):
		return errProxyHeader
	case !isHTTP(text):
		return errNotHTTP
	case seen.folded:
		return &refusal{http.StatusBadRequest, "a header line is folded"}
	case seen.encoding && seen.length:
		return &refusal{http.StatusBadRequest, "both Content-Length and Transfer-Encoding"}
	case err != nil && strings.Contains(err.Error(), "transfer encoding"):
		return &refusal{http.StatusNotImplemented, "only the transfer coding chunked is supported"}
	case err != nil:
		return &refusal{http.StatusBadRequest, "the request line or a header field is malformed"}
	case parsed.ProtoMajor != 1:
		return &refusal{http.StatusHTTPVersionNotSupported, "this server speaks HTTP/1.1 here"}
	case seen.encoding && !parsed.ProtoAtLeast(1, 1):
		return &refusal{http.StatusBadRequest, "Transfer-Encoding in HTTP/1.0"}
	}
	// http.ReadRequest removes the Host field; in a target with a host, the field is ignored.
	if !httpguts.ValidHostHeader(seen.host) {
		return &refusal{http.StatusBadRequest, "the Host field is malformed"}
	}
	if err := checkHost(seen.hosts, parsed); err != nil {
		return err
	}
	for key := range parsed.Header {
		if !wire.All(key, wire.IsToken) {
			return &refusal{http.StatusBadRequest, "the name of a field is malformed"}
		}
	}
	r := c.request
	r.Method, r.URL, r.RequestURI, r.Host = parsed.Method, parsed.URL, parsed.RequestURI, parsed.Host
	r.Proto, r.ProtoMajor, r.ProtoMinor = parsed.Proto, parsed.ProtoMajor, parsed.ProtoMinor
	r.Header, r.Trailer, r.TransferEncoding = parsed.Header, parsed.Trailer, parsed.TransferEncoding
	r.ContentLength, r.Close = parsed.ContentLength, parsed.Close
	return nil
}

// errNotHTTP ends a connection without a response: the client speaks another protocol, for example
// HTTP/2 with a broken preface (RFC 9113 3.4).
var errNotHTTP = errors.New("the first line does not name HTTP")

// isHTTP returns true if the first line has the name and a version of HTTP.
func isHTTP(text string) bool {
	line, _, _ := wire.NextLine(text)
	return strings.Contains(line, " HTTP/")
}

// special is what a head has of the fields that frame and route the request, however they are written.
type special struct {
	length, encoding bool
	// folded: a line continues the one before (RFC 9112 5.2).
	folded bool
	hosts  int
	host   string
}

// scan finds the special fields in a head.
func scan(text string) (found special) {
	_, rest, _ := wire.NextLine(text)
	for rest != "" {
		var line string
		line, rest, _ = wire.NextLine(rest)
		found.folded = found.folded || line != "" && (line[0] == ' ' || line[0] == '\t')
		name, value, _ := strings.Cut(line, ":")
		switch name = wire.Trim(name); {
		case wire.EqualFold(name, "Content-Length"):
			found.length = true
		case wire.EqualFold(name, "Transfer-Encoding"):
			found.encoding = true
		case wire.EqualFold(name, "Host"):
			found.host = wire.Trim(value)
			found.hosts++
		}
	}
	return found
}
