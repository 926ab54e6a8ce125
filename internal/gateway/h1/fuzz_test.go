package h1

import (
	"bufio"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

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
		n := headEnd([]byte(data), 0)
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

// responses are heads of responses at the borders of the grammar.
var responses = []string{
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA: b\r\na: c\r\n\r\n",
	"HTTP/1.1 200\r\n\r\n",
	"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.0 200 OK\r\nConnection: close\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\n",
	"HTTP/1.1 200 OK\r\nConnection: a, close\r\nContent-Length: 5\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 05\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nTrailer: X\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X, content-length\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
	"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
	"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
	"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
	"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: a\r\n\r\n",
	"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
	"HTTP/1.7 200 OK\nPragma: no-cache\n\n",
	"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 5\r\n\r\n",
	"HTTP/1.1 200 OK\r\n \r\nContent-Length: 5\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length : 5\r\nA: \x00\r\n\r\n",
}

// FuzzResponse proves that the parser of a response's head accepts only what net/http accepts, with the
// same meaning.
func FuzzResponse(f *testing.F) {
	for _, head := range responses {
		f.Add(head, false)
		f.Add(head, true)
	}
	f.Fuzz(func(t *testing.T, data string, toHead bool) {
		n := headEnd([]byte(data), 0)
		if n == 0 {
			return
		}
		text, method := data[:n], "GET"
		if toHead {
			method = "HEAD"
		}
		u := new(upstream)
		got, err := u.parse(text, method)
		if err != nil {
			return
		}
		from := bufio.NewReader(strings.NewReader(text + "0\r\n\r\n"))
		want, err := http.ReadResponse(from, &http.Request{Method: method})
		if err != nil {
			t.Fatalf("accepted, but net/http refuses with %v: %q", err, text)
		}
		if rest, _ := io.ReadAll(from); string(rest) != "0\r\n\r\n" {
			t.Fatalf("the head of %q ends elsewhere: %q remains", text, rest)
		}
		compareResponses(t, got, u.fields, want)
	})
}

func compareResponses(t *testing.T, got response, fields []field, want *http.Response) {
	t.Helper()
	type view struct {
		Status          int
		Header          http.Header
		Length          int64
		Chunked, Closes bool
	}
	header := http.Header{}
	for _, f := range fields {
		header[f.key] = append(header[f.key], f.value)
	}
	likeReadResponse(header, want)
	w := view{want.StatusCode, want.Header, want.ContentLength, want.TransferEncoding != nil, want.Close}
	if want.Body == http.NoBody {
		w.Length, w.Chunked = 0, false
	}
	if g := (view{got.status, header, got.length, got.chunked, got.closing}); !reflect.DeepEqual(g, w) {
		t.Fatalf("got  %+v\nwant %+v", g, w)
	}
}

// likeReadResponse makes the changes to the header with which http.ReadResponse moves fields to other
// places of the response, and takes back one that it makes.
func likeReadResponse(header http.Header, want *http.Response) {
	delete(header, "Transfer-Encoding")
	if want.TransferEncoding != nil {
		delete(header, "Trailer")
	}
	if want.ProtoMinor > 0 && named(header["Connection"], "close") {
		delete(header, "Connection")
	}
	if n := header["Content-Length"]; n != nil {
		header["Content-Length"] = n[:1]
	}
	if header["Pragma"] != nil && header["Cache-Control"] == nil {
		delete(want.Header, "Cache-Control")
	}
}

// FuzzChunked proves that the decoder accepts only what net/http accepts, with the same data.
func FuzzChunked(f *testing.F) {
	for _, body := range []string{"3\r\nabc\r\n0\r\n\r\n", "3;a=b\r\nabc\r\n0\r\nA: b\r\n\r\n",
		"3 \r\nabc\r\n00\r\n\r\n",
		"3\nabc\r\n0\r\n\r\n", "3\r\nabc0\r\n\r\n", "0\r\n\n", "A\r\n0123456789\r\n0\r\nA: b\n\n",
		"0\r\n0:\n\r\n"} {
		f.Add(body)
	}
	const head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
	f.Fuzz(func(t *testing.T, data string) {
		in := &input{conn: &scripted{r: strings.NewReader(data)}, max: bufferSize}
		defer in.release()
		var d chunked
		d.reset(in)
		var got []byte
		var err error
		for {
			var b []byte
			if b, err = d.next(); err != nil {
				break
			}
			got = append(got, b...)
			d.used(len(b))
		}
		if err != io.EOF {
			return
		}
		from := bufio.NewReaderSize(strings.NewReader(head+data), bufferSize)
		r, err := http.ReadRequest(from)
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(r.Body)
		if err != nil || string(want) != string(got) {
			t.Fatalf("%q: got %q, net/http gets %q, error %v", data, got, want, err)
		}
		rest, _ := io.ReadAll(from)
		remains, _ := io.ReadAll(in.conn)
		if ours := string(in.bytes()) + string(remains); ours != string(rest) {
			t.Fatalf("%q: %q remains, with net/http %q", data, ours, rest)
		}
	})
}
