package h1

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/gateway/h1/forward"
	"fairlead/internal/gateway/h1/h1test"
	"fairlead/internal/gateway/h1/wire"
	"fairlead/test/place"
)

func TestForwardsResponses(t *testing.T) {
	big := string(text)
	cases := map[string]struct {
		request, response, body string
		status                  int
	}{
		"length": {h1test.Get, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", 200},
		"no reason, lower case, LF": {h1test.Get, "HTTP/1.1 404\ncontent-length:3 \n\nabc",
			"abc", 404},
		"same length twice": {h1test.Get, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", "ok", 200},
		"long": {h1test.Get, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(big), big),
			big, 200},
		"chunked": {h1test.Get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n", "abc", 200},
		"long chunked": {h1test.Get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunkedText(text, 30000),
			big, 200},
		"to the end":      {h1test.Get, "HTTP/1.0 200 OK\r\n\r\nuntil close", "until close", 200},
		"long to the end": {h1test.Get, "HTTP/1.1 200 OK\r\n\r\n" + big, big, 200},
		"no content":      {h1test.Get, "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", "", 204},
		"HEAD":            {"HEAD" + h1test.Get[3:], "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", "", 200},
		"not modified":    {h1test.Get, "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", "", 304},
		"many interim": {h1test.Get, strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 100) +
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
			"ok", 200},
		"interim": {h1test.Get, "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
			"ok", 200},
	}
	onFronts(t, func(t *testing.T, front string) {
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				addr, _ := gateway(t, front, h1test.NewBackend(t, answers(c.response)))
				res, body, err := roundTrip(t, addr, c.request)
				if err != nil || res.StatusCode != c.status || body != c.body {
					t.Fatalf("got %v, %d bytes, error %v; want status %d and %d bytes", res, len(body), err, c.status,
						len(c.body))
				}
			})
		}
	})
}

// roundTrip sends a request and returns the final response with its body.
func roundTrip(t *testing.T, addr, request string) (*http.Response, string, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(place.Timeout))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	br := bufio.NewReader(c)
	for {
		res, err := http.ReadResponse(br, &http.Request{Method: method})
		if err != nil {
			return nil, "", err
		}
		if res.StatusCode < 200 {
			continue
		}
		body, err := io.ReadAll(res.Body)
		return res, string(body), err
	}
}

func TestRefusesResponses(t *testing.T) {
	cases := map[string]string{
		"two lengths":      "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
		"length list":      "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nab",
		"signed length":    "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nab",
		"length and TE":    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"TE list":          "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\nContent-Length: 0\r\n\r\n",
		"TE twice":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"TE in 1.0":        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"folded":           "HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n",
		"space in name":    "HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n",
		"control in value": "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: b\rc\r\n\r\n",
		"no status":        "HTTP/1.1 OK\r\nContent-Length: 0\r\n\r\n",
		"other protocol":   "SSH-2.0-OpenSSH_9.2\r\nContent-Length\r\n\r\n",
		"unasked 101":      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n",
		"endless interim": strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 3000) +
			"HTTP/1.1 200 Content-Length\r\n\r\n",
		"huge head": "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: " + strings.Repeat("a", wire.BufferSize) + "\r\n\r\n",
	}
	for name, response := range cases {
		t.Run(name, func(t *testing.T) {
			addr, f := gateway(t, "net/http", h1test.NewBackend(t, answers(response)))
			res, _, err := roundTrip(t, addr, h1test.Get)
			if err != nil || res.StatusCode != http.StatusBadGateway {
				t.Fatalf("got %v, error %v, want status 502", res, err)
			}
			if e := <-f.errors; e.Started || !e.Sent || f.pool.Counters().Idle != 0 {
				t.Errorf("error %+v, counters %+v: want sent, not started, no idle connection", e, f.pool.Counters())
			}
		})
	}
}

// A body that breaks off or is malformed must end the client's connection too.
func TestAbortsTruncatedResponses(t *testing.T) {
	chunkedHead := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	cases := map[string]string{
		"short length":      "HTTP/1.1 200 OK\r\nX: y\r\ncontent-length: 10\r\n\r\nabc",
		"short long length": "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nabc",
		"bare LF":           chunkedHead + "3\nabc\r\n0\r\n\r\n",
		"bare LF in data":   chunkedHead + "3\r\nabc\n0\r\n\r\n",
		"bad size":          chunkedHead + "x\r\nabc\r\n",
		"space in size":     chunkedHead + "3 ;a\r\nabc\r\n0\r\n\r\n",
		"huge size":         chunkedHead + "8000000000000000\r\nabc\r\n",
		"long extension":    chunkedHead + "3;" + strings.Repeat("a", wire.MaxChunkLine) + "\r\nabc\r\n0\r\n\r\n",
		"many extensions":   chunkedHead + strings.Repeat("1;"+strings.Repeat("a", 1000)+"\r\nx\r\n", 40) + "0\r\n\r\n",
		"no last chunk":     "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n3\r\nabc\r\n",
		"bad trailer":       chunkedHead + "3\r\nabc\r\n0\r\nA : b\r\n\r\n",
		"LF in trailer":     chunkedHead + "3\r\nabc\r\n0\r\nA: b\n\n",
	}
	onFronts(t, func(t *testing.T, front string) {
		for name, response := range cases {
			t.Run(name, func(t *testing.T) {
				response := response
				addr, f := gateway(t, front, h1test.NewBackend(t, func(c net.Conn, br *bufio.Reader, _ int) {
					_, _ = h1test.ReadRequestHead(br)
					_, _ = io.WriteString(c, response)
				}))
				_, body, err := roundTrip(t, addr, h1test.Get)
				if err == nil {
					t.Fatalf("got a complete response with %d bytes, want an error", len(body))
				}
				if e := <-f.errors; !e.Started {
					t.Errorf("error %+v, want a started response", e)
				}
			})
		}
	})
}

func TestSendsRequestHead(t *testing.T) {
	heads := make(chan string, 1)
	b := h1test.NewBackend(t, func(c net.Conn, br *bufio.Reader, _ int) {
		head, _ := h1test.ReadRequestHead(br)
		heads <- head
		_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
	})
	p := newPool(t, b.Addr)
	r := httptest.NewRequest("GET", "/a%2Fb?c=%20", nil)
	r.Header = http.Header{"Accept": {"x", "y"}, "Connection": {"close, X-Hop", "keep-alive"}, "X-Hop": {"1"},
		"Te": {"trailers"}, "Keep-Alive": {"5"}, "Proxy-Connection": {"x"}, "Upgrade": {"h2c"}, "Host": {"wrong"},
		"Http2-Settings": {"x"}, "Transfer-Encoding": {"chunked"}, "Content-Length": {"7"}, "Trailer": {"A"}}
	if err := p.Forward(httptest.NewRecorder(), r, "server.example"); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(<-heads, "\r\n\r\n"), "\r\n")
	want := []string{"GET /a%2Fb?c=%20 HTTP/1.1", "Host: server.example", "Accept: x", "Accept: y"}
	if !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
}

func TestRefusesRequestsThatWouldBeSplit(t *testing.T) {
	p := newPool(t, "127.0.0.1:1")
	change := map[string]func(*http.Request){
		"method": func(r *http.Request) { r.Method = "GET /x HTTP/1.1\r\n" },
		"query":  func(r *http.Request) { r.URL.RawQuery = "a b" },
		"host":   func(r *http.Request) { r.Host = "a\r\nb: c" },
		"name":   func(r *http.Request) { r.Header["A: b\r\nC"] = []string{"d"} },
		"value":  func(r *http.Request) { r.Header["A"] = []string{"b\r\nC: d"} },
	}
	for name, change := range change {
		r := httptest.NewRequest("GET", "/", nil)
		change(r)
		err, _ := p.Forward(httptest.NewRecorder(), r, "").(*wire.Error)
		if err == nil || err.Op != "write request" || err.Sent || err.Status() != http.StatusBadRequest {
			t.Errorf("%s: error %+v, want a refusal with status 400", name, err)
		}
	}
}

func TestFieldsOfResponses(t *testing.T) {
	b := h1test.NewBackend(t, answers("HTTP/1.1 200 OK\r\nSet-Cookie: b=2\r\nset-cookie: c=3\r\nConnection: X-Hop\r\n"+
		"X-Hop: 1\r\nKeep-Alive: 5\r\nUpgrade: h2c\r\nTrailer: X-After\r\nTransfer-Encoding: chunked\r\n\r\n"+
		"1\r\nx\r\n0\r\nX-After: yes\r\nX-More: too\r\nContent-Length: 7\r\n\r\n"))
	p := newPool(t, b.Addr)
	w := httptest.NewRecorder()
	w.Header().Set("Set-Cookie", "a=1")
	if err := p.Forward(w, httptest.NewRequest("GET", "/", nil), ""); err != nil {
		t.Fatal(err)
	}
	res := w.Result()
	if got := res.Header["Set-Cookie"]; !slices.Equal(got, []string{"a=1", "b=2", "c=3"}) {
		t.Errorf("cookies %q", got)
	}
	for _, key := range []string{"Connection", "X-Hop", "Keep-Alive", "Upgrade", "Transfer-Encoding",
		"Content-Length"} {
		if res.Header[key] != nil {
			t.Errorf("%s was passed on", key)
		}
	}
	if res.Trailer.Get("X-After") != "yes" || res.Trailer.Get("X-More") != "too" || len(res.Trailer) != 2 {
		t.Errorf("trailer %v, want X-After and X-More", res.Trailer)
	}
}

func TestCancellationInterruptsTheServersConnection(t *testing.T) {
	gone := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	b := h1test.NewBackend(t, func(c net.Conn, br *bufio.Reader, _ int) {
		_, _ = h1test.ReadRequestHead(br)
		cancel()
		_, err := br.ReadByte()
		gone <- err
	})
	err, _ := newPool(t, b.Addr).Forward(httptest.NewRecorder(),
		httptest.NewRequest("GET", "/", nil).WithContext(ctx), "").(*wire.Error)
	if err == nil || err.Status() != wire.StatusClientClosedRequest || err.Repeatable("GET") && err.Started {
		t.Errorf("error %+v, want status 499", err)
	}
	if err := <-gone; err != io.EOF {
		t.Errorf("the server's connection got %v, want EOF", err)
	}
}

func TestTimeLimits(t *testing.T) {
	b := h1test.NewBackend(t, func(_ net.Conn, br *bufio.Reader, _ int) { _, _ = io.Copy(io.Discard, br) })
	p := newPool(t, b.Addr)
	p.HeaderTimeout = time.Millisecond
	for _, body := range []int{0, forward.MaxInline + 1} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", body)))
		err, _ := p.Forward(httptest.NewRecorder(), r, "").(*wire.Error)
		if err == nil || err.Status() != http.StatusGatewayTimeout {
			t.Errorf("body of %d bytes: error %+v, want status 504", body, err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	r := httptest.NewRequest("GET", "/", nil).WithContext(ctx)
	err, _ := newPool(t, b.Addr).Forward(httptest.NewRecorder(), r, "").(*wire.Error)
	if err == nil || err.Status() != http.StatusGatewayTimeout {
		t.Errorf("error %+v, want status 504", err)
	}
}

// panicking is a writer of a middleware that gives up.
type panicking struct{ http.ResponseWriter }

func (panicking) Write([]byte) (int, error) { panic(http.ErrAbortHandler) }

func TestWriterThatPanicsClosesTheConnection(t *testing.T) {
	p := newPool(t, h1test.NewBackend(t, answers("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")).Addr)
	func() {
		defer func() { _ = recover() }()
		_ = p.Forward(panicking{httptest.NewRecorder()}, httptest.NewRequest("GET", "/", nil), "")
	}()
	if got := p.Counters(); got.Open != 0 {
		t.Errorf("counters %+v, want no connection", got)
	}
}
