package h1

import (
	"bufio"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"fairlead/internal/gateway/h1/wire"

	"golang.org/x/net/http/httpguts"
)

// heads are heads at the borders of the grammar.
var heads = []string{
	"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /a/b?c=d&e HTTP/1.1\r\nHost: a:80\r\nAccept: */*\r\nX: y\r\nx: z\r\n\r\n",
	"GET /? HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /a??b HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
	"GET //a HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /%2e%2E/a%2fb HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET http://b/c HTTP/1.1\r\nHost: a\r\n\r\n",
	"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
	"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\nTrailer: X\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
	"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
	"GET / HTTP/1.1\nHost: a\n\n",
	"GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n",
	"GET / HTTP/1.1\r\nHost : a\r\nContent-Length : 5\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nPragma: no-cache\r\nConnection: a, close\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: \xc3\xa4\r\nA: \x01\r\n\r\n",
	"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
	"PRI * HTTP/2.0\r\n\r\n",
	"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
}

// FuzzHead proves that the parser accepts only what net/http accepts, with the same meaning.
func FuzzHead(f *testing.F) {
	for _, head := range heads {
		f.Add(head)
	}
	s := &Server{}
	f.Fuzz(func(t *testing.T, data string) {
		n := wire.HeadEnd([]byte(data), 0)
		if n == 0 {
			return
		}
		text := data[:n]
		c := &conn{server: s, request: new(http.Request), header: http.Header{}}
		c.newContext()
		err := c.parse(text)
		// What follows the head must not be read as a part of it.
		from := bufio.NewReader(strings.NewReader(text + "0\r\n\r\n"))
		want, wantErr := http.ReadRequest(from)
		if err != nil {
			if wantErr == nil && commonRequest(want, text) {
				t.Fatalf("refused with %v, net/http accepts %q", err, text)
			}
			return
		}
		if wantErr != nil {
			t.Fatalf("accepted, but net/http refuses with %v: %q", wantErr, text)
		}
		if rest, _ := io.ReadAll(from); string(rest) != "0\r\n\r\n" {
			t.Fatalf("the head of %q ends elsewhere: %q remains", text, rest)
		}
		compareRequests(t, c.request, want)
	})
}

// commonRequest returns true for requests that must be accepted.
func commonRequest(r *http.Request, text string) bool {
	seen := scan(text)
	for key := range r.Header {
		if !httpguts.ValidHeaderFieldName(key) {
			return false
		}
	}
	if seen.folded || r.Host == "" && seen.hosts > 0 {
		return false
	}
	return r.ProtoMajor == 1 && !(seen.encoding && (seen.length || r.ProtoMinor == 0)) && seen.hosts == 1 &&
		httpguts.ValidHostHeader(seen.host) && httpguts.ValidHostHeader(r.Host)
}

func compareRequests(t *testing.T, got, want *http.Request) {
	t.Helper()
	type view struct {
		Method, Target, Proto, Host string
		Major, Minor                int
		URL                         any
		Header, Trailer             http.Header
		Length                      int64
		Encoding                    []string
		Close                       bool
	}
	of := func(r *http.Request) view {
		return view{r.Method, r.RequestURI, r.Proto, r.Host, r.ProtoMajor, r.ProtoMinor, *r.URL, r.Header, r.Trailer,
			r.ContentLength, r.TransferEncoding, r.Close}
	}
	if g, w := of(got), of(want); !reflect.DeepEqual(g, w) {
		t.Fatalf("got  %+v\nwant %+v", g, w)
	}
}
