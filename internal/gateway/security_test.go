package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	model "fairlead/internal/model/gateway"
	"fairlead/test/place"
)

// echoed is what a server has received, as the body of its response.
func echoed(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(rw, "%s %s\n", r.Method, r.RequestURI)
	for name, values := range r.Header {
		for _, v := range values {
			fmt.Fprintf(rw, "%s: %s\n", name, v)
		}
	}
	fmt.Fprintf(rw, "body %q, error %v\n", body, err)
}

// exposed starts a gateway before a server that returns what it receives, at a.test.
func exposed(t *testing.T, at model.EntryPoint, middlewares map[string]*model.Middleware, chain ...string) *world {
	at.Name, at.Address = "web", "127.0.0.1:0"
	w := newWorld(t, model.Static{EntryPoints: []model.EntryPoint{at}})
	w.gateway.Apply(&model.Config{HTTP: model.HTTP{Middlewares: middlewares,
		Routers: map[string]*model.Router{
			"r@file": {Rule: "Host(`a.test`)", Service: "s@file", Middlewares: chain},
			"t@file": {Rule: "Host(`a.test`)", Service: "s@file", TLS: &model.RouterTLS{}},
		},
		Services: map[string]*model.Service{"s@file": server(t, echoed)}}}, nil)
	return w
}

// send sends text on a new connection, and returns all that comes back until the gateway
// closes it.
func (w *world) send(text string) string {
	w.t.Helper()
	c := w.connect()
	go func() { _, _ = io.WriteString(c, text) }() // the gateway may refuse it before the end
	all, _ := io.ReadAll(c)                        // a reset is an end, too
	return string(all)
}

// connect connects to the gateway.
func (w *world) connect() net.Conn {
	w.t.Helper()
	c, err := net.Dial("tcp", w.address)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(place.Timeout))
	return c
}

// last is a request that ends the connection: if it is answered, what precedes it was
// taken for a whole request.
const last = "GET /last HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"

// TestAmbiguousRequestsAreRefused sends requests that two servers could frame or route
// differently: each gets 400 (or another error), and its connection ends.
func TestAmbiguousRequestsAreRefused(t *testing.T) {
	w := exposed(t, model.EntryPoint{}, nil)
	const post = "POST / HTTP/1.1\r\nHost: a.test\r\n"
	const chunked = post + "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
	const claim2 = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x01\x02\x03\x04\x05\x06\x07\x08\x00\x01\x00\x02"
	for name, s := range map[string]struct {
		text   string
		status int
	}{
		"Content-Length and Transfer-Encoding": {
			post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		"Transfer-Encoding and Content-Length": {
			post + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400},
		"two lengths":           {post + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400},
		"length with a sign":    {post + "Content-Length: +5\r\n\r\nhello", 400},
		"list of lengths":       {post + "Content-Length: 5, 5\r\n\r\nhello", 400},
		"coding before chunked": {post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
		"unknown coding":        {post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501},
		"coding with a control": {post + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400},
		"space before a colon":  {post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400},
		"coding in HTTP/1.0": {
			"POST / HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		"two hosts":                   {"GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n", 400},
		"no host":                     {"GET / HTTP/1.1\r\n\r\n", 400},
		"host with a path":            {"GET / HTTP/1.1\r\nHost: a.test/x\r\n\r\n", 400},
		"name with a control":         {post + "X\x00Y: z\r\n\r\n", 400},
		"value with a line end":       {post + "X: a\rb\r\n\r\n", 400},
		"target without a slash":      {"GET rootless HTTP/1.1\r\nHost: a.test\r\n\r\n", 400},
		"target with a fragment":      {"GET /a#b HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n", 400},
		"target with a broken escape": {"GET /%zz HTTP/1.1\r\nHost: a.test\r\n\r\n", 400},
		"CONNECT": {
			"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n", 501},
		"folded line":                 {"GET / HTTP/1.1\r\nHost: a.test\r\nX: y\r\n Transfer-Encoding: chunked\r\n\r\n", 400},
		"folded first line":           {"GET / HTTP/1.1\r\n\tX: y\r\nHost: a.test\r\n\r\n", 400},
		"GET *":                       {"GET * HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n", 400},
		"empty host":                  {"GET / HTTP/1.1\r\nHost:\r\n\r\n", 400},
		"empty host in HTTP/1.0":      {"GET / HTTP/1.0\r\nHost: \r\n\r\n", 400},
		"lines with CR alone":         {"GET / HTTP/1.1\rHost: a.test\r\r", 400},
		"a line with CR alone":        {"GET / HTTP/1.1\r\nHost: a.test\rX: y\r\n", 400},
		"CR alone before the version": {"GET /\rx HTTP/1.1\r\nHost: a.test\r\n\r\n", 400},
		"many empty lines":            {strings.Repeat("\r\n", 9), 400},
		"PROXY header of version 1":   {claim, 400},
		"PROXY header of version 2":   {claim2, 400},
		"space behind a chunk's size": {chunked + "5 \r\nhello\r\n0\r\n\r\n", 400},
		"empty chunk extension":       {chunked + "5;\r\nhello\r\n0\r\n\r\n", 400},
		"extension without a value":   {chunked + "5;a=\r\nhello\r\n0\r\n\r\n", 400},
		"another version":             {"GET / HTTP/3.0\r\nHost: a.test\r\n\r\n", 505},
	} {
		got := w.send(s.text + last)
		if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", s.status)) || strings.Contains(got, "/last") ||
			!strings.Contains(got, "Connection: close\r\n") {
			t.Errorf("%s: got %.200q, want %d and the end", name, got, s.status)
		}
	}
}

// TestFieldsOfOneConnectionStayOnIt checks what a server sees of a client's fields.
func TestFieldsOfOneConnectionStayOnIt(t *testing.T) {
	w := exposed(t, model.EntryPoint{}, nil)
	for name, s := range map[string]struct{ head, must, mustNot string }{
		"Connection names X-Forwarded-For": {
			"Connection: close, X-Forwarded-For\r\n", "X-Forwarded-For: 127.0.0.1", ""},
		"Connection names X-Real-Ip": {"Connection: close, X-Real-Ip\r\n", "X-Real-Ip: 127.0.0.1", ""},
		"Connection names a field":   {"Connection: close, X-Hop\r\nX-Hop: 1\r\n", "", "X-Hop"},
		"Keep-Alive":                 {"Keep-Alive: 300\r\n", "", "Keep-Alive"},
		"Proxy-Connection":           {"Proxy-Connection: keep-alive\r\n", "", "Proxy-Connection"},
		"Te":                         {"TE: gzip\r\n", "", "Te:"},
		"Proxy-Authorization":        {"Proxy-Authorization: Basic eA==\r\n", "", "Proxy-Auth"},
		"upgrade to h2c": {"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
			"GET /", "h2c"},
		"upgrade to h2c without Connection": {"Upgrade: h2c\r\n", "GET /", "h2c"},
		"aliases": {"X_Forwarded_For: 6.6.6.6\r\nX_Real-Ip: 6.6.6.6\r\nx-forwarded_proto: https\r\n" +
			"X-Forwarded_Host: evil.test\r\n", "X-Forwarded-Proto: http\n", "6.6.6.6"},
		"aliases of the host": {"X-Forwarded_Host: evil.test\r\n", "X-Forwarded-Host: a.test", "evil.test"},
	} {
		got := w.send("GET / HTTP/1.1\r\nHost: a.test\r\n" + s.head + "\r\n" + last)
		first, _, _ := strings.Cut(got, "/last")
		if !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.Contains(first, s.must) ||
			s.mustNot != "" && strings.Contains(first, s.mustNot) {
			t.Errorf("%s: the server has received %q, want %q and not %q", name, first, s.must, s.mustNot)
		}
	}
}

// TestOrigins checks that an absolute target routes by its own host, and that the server
// gets that one.
func TestOrigins(t *testing.T) {
	w := exposed(t, model.EntryPoint{}, nil)
	got := w.send("GET http://b.test/ HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 404 ") {
		t.Errorf("a target with the host b.test and the field Host: a.test: %.100q, want 404", got)
	}
	got = w.send("GET http://a.test/x HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n")
	if !strings.Contains(got, "GET /x\n") || !strings.Contains(got, "X-Forwarded-Host: a.test\n") {
		t.Errorf("the server has received %q", got)
	}
}

// TestTolerance sends what RFC 9112 asks a server to accept.
func TestTolerance(t *testing.T) {
	w := exposed(t, model.EntryPoint{}, nil)
	const chunked = "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, s := range map[string]struct{ text, want string }{
		"an empty line behind a body": {
			"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello\r\n", `body "hello"`},
		"empty lines before the first request": {"\r\n\r\nGET /x HTTP/1.1\r\nHost: a.test\r\n\r\n", "GET /x\n"},
		"OPTIONS *":                            {"OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n", "Content-Length: 0\r\n"},
		"chunk extensions":                     {chunked + "5;a\r\nhello\r\n0\r\n\r\n", `body "hello"`},
		"extensions with values":               {chunked + "5; a = b;c=\"d\\\"; e\"\r\nhello\r\n0;x\r\n\r\n", `body "hello"`},
		"no Host field of version":             {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "404 Not Found"},
	} {
		got := w.send(s.text + last)
		if strings.Contains(got, "HTTP/1.1 400") || !strings.Contains(got, s.want) || !strings.Contains(got, "/last") {
			t.Errorf("%s: got %.400q, want %q and the answer to the next request", name, got, s.want)
		}
	}
}

// TestLateEmptyLine sends the empty line behind a body when the response has arrived: the next request is answered.
func TestLateEmptyLine(t *testing.T) {
	w := exposed(t, model.EntryPoint{}, nil)
	c := w.connect()
	from := bufio.NewReader(c)
	for _, text := range []string{"POST /1 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello", "\r\n" + last} {
		_, _ = io.WriteString(c, text)
		answer, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		if answer.Body.Close(); answer.StatusCode != 200 {
			t.Errorf("status %d", answer.StatusCode)
		}
	}
}
