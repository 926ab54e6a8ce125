package gateway_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	model "fairlead/internal/model/gateway"
	"fairlead/test/place"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// flood is an attack on a connection of HTTP/2 by many frames.
type flood struct {
	frames *http2.Framer
	block  []byte
}

// open opens a stream.
func (f *flood) open(id uint32) error {
	return f.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.block, EndStream: true,
		EndHeaders: true})
}

// TestGoCVEsOfHTTP2 sends frames until the gateway closes the connection. It must do so
// before the attack has gone on for long, and must go on to serve others.
func TestGoCVEsOfHTTP2(t *testing.T) {
	const streams = 10
	for _, s := range []struct {
		cve    string
		attack func(f *flood, n uint32) error
		code   http2.ErrCode
	}{
		{"CVE-2023-44487 rapid reset", func(f *flood, n uint32) error {
			return errors.Join(f.open(2*n+1), f.frames.WriteRSTStream(2*n+1, http2.ErrCodeCancel))
		}, http2.ErrCodeEnhanceYourCalm},
		{"CVE-2025-8671 MadeYouReset", func(f *flood, n uint32) error {
			return errors.Join(f.open(2*n+1),
				f.frames.WriteRawFrame(http2.FrameWindowUpdate, 0, 2*n+1, make([]byte, 4)))
		}, http2.ErrCodeEnhanceYourCalm},
		{"CVE-2023-45288 CONTINUATION", func(f *flood, n uint32) error {
			if n == 0 {
				return f.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.block})
			}
			var block bytes.Buffer
			name := fmt.Sprintf("x-%d", n)
			e := hpack.NewEncoder(&block)
			err := e.WriteField(hpack.HeaderField{Name: name, Value: strings.Repeat("~", 1000), Sensitive: true})
			return errors.Join(err, f.frames.WriteContinuation(1, false, block.Bytes()))
		}, http2.ErrCodeProtocol},
	} {
		t.Run(s.cve, func(t *testing.T) {
			var now, peak atomic.Int64
			w := newWorld(t, model.Static{EntryPoints: []model.EntryPoint{{Name: "web", Address: "127.0.0.1:0",
				MaxConcurrentStreams: streams}}})
			w.apply(map[string]*model.Router{"r@file": {Rule: "PathPrefix(`/`)", Service: "s@file"}},
				map[string]*model.Service{"s@file": server(t, func(_ http.ResponseWriter, r *http.Request) {
					if n := now.Add(1); n > peak.Load() {
						peak.Store(n)
					}
					defer now.Add(-1)
					if r.URL.Path != "/ping" {
						<-r.Context().Done()
					}
				})})
			c := w.connect()
			_, _ = io.WriteString(c, http2.ClientPreface)
			f := &flood{frames: http2.NewFramer(c, c), block: requestBlock(t)}
			_ = f.frames.WriteSettings()
			code := make(chan http2.ErrCode, 1)
			go func() { code <- goAway(f.frames) }()
			n := uint32(0)
			var err error
			for ; err == nil; n++ {
				err = s.attack(f, n)
			}
			// A reset can overtake GOAWAY.
			if got := <-code; got != s.code && got != http2.ErrCodeNo || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("after %d attacks: GOAWAY with %v and error %v, want %v and the end", n, got, err, s.code)
			}
			if n := peak.Load(); n > streams {
				t.Errorf("the server had %d requests at once, want at most %d", n, streams)
			}
			if status, _ := w.get("http://a.test/ping"); status != http.StatusOK {
				t.Errorf("another client gets %d", status)
			}
		})
	}
}

// requestBlock is the header block of a request.
func requestBlock(t *testing.T) []byte {
	var out bytes.Buffer
	e := hpack.NewEncoder(&out)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "a.test"}} {
		if err := e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// goAway reads frames until the connection ends, and returns the code of GOAWAY.
func goAway(frames *http2.Framer) (code http2.ErrCode) {
	for {
		f, err := frames.ReadFrame()
		if err != nil {
			return code
		}
		if g, ok := f.(*http2.GoAwayFrame); ok {
			code = g.ErrCode
		}
	}
}

// TestGoCVEsOfChunks sends chunked bodies which some servers read otherwise: the request
// must fail, and what follows the body must not be taken for a request.
func TestGoCVEsOfChunks(t *testing.T) {
	w := exposed(t, model.EntryPoint{}, nil)
	for cve, body := range map[string]string{
		"CVE-2025-22871 bare LF after the size":      "5\nhello\r\n0\r\n\r\n",
		"CVE-2025-22871 bare LF after an extension":  "5;a\nhello\r\n0\r\n\r\n",
		"CVE-2025-22871 bare LF after the data":      "5\r\nhello\n0\r\n\r\n",
		"CVE-2025-22871 bare LF after the last size": "5\r\nhello\r\n0\n\r\n",
		"CVE-2023-39326 long extension":              "5;" + strings.Repeat("a", 5000) + "\r\nhello\r\n0\r\n\r\n",
		"CVE-2023-39326 many extensions": strings.Repeat("1;"+strings.Repeat("a", 100)+"\r\nx\r\n", 1000) +
			"0\r\n\r\n",
		"size with a sign": "+5\r\nhello\r\n0\r\n\r\n", "size with a prefix": "0x5\r\nhello\r\n0\r\n\r\n",
		"size over 64 bits": "10000000000000005\r\nhello\r\n0\r\n\r\n",
	} {
		got := w.send("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n" + body + last)
		if strings.Contains(got, "HTTP/1.1 200 ") || strings.Contains(got, "/last") {
			t.Errorf("%s: got %.300q", cve, got)
		}
	}
}

// TestGoCVEsOfServersChunks does the same from the server's side.
func TestGoCVEsOfServersChunks(t *testing.T) {
	for cve, body := range map[string]string{
		"CVE-2025-22871 bare LF": "5\nhello\r\n0\r\n\r\n",
		"CVE-2023-39326 many extensions": strings.Repeat("1;"+strings.Repeat("a", 100)+"\r\nx\r\n", 1000) +
			"0\r\n\r\n",
	} {
		address := scriptedServer(t, func(c net.Conn, in *bufio.Reader) {
			_, _ = http.ReadRequest(in)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+body)
			_, _ = io.Copy(io.Discard, in)
		})
		w := newWorld(t, model.Static{})
		w.apply(map[string]*model.Router{"r@file": {Rule: "PathPrefix(`/`)", Service: "s@file"}},
			map[string]*model.Service{"s@file": serviceOf("http://" + address)})
		if got := w.send(last); strings.HasSuffix(got, "0\r\n\r\n") {
			t.Errorf("%s: the client gets a complete response: %.100q", cve, got)
		}
	}
}

// scriptedServer runs a function on each connection.
func scriptedServer(t *testing.T, serve func(net.Conn, *bufio.Reader)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go place.Accept(l, func(c net.Conn) { serve(c, bufio.NewReader(c)) })
	return l.Addr().String()
}

// early is a server that answers requests for /upload before it has the body.
type early struct {
	mu    sync.Mutex
	paths []string
}

// status records a request and returns the status of its answer.
func (e *early) status(r *http.Request) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.paths = append(e.paths, r.Proto+" "+r.URL.Path)
	if r.URL.Path == "/upload" {
		return http.StatusForbidden
	}
	return http.StatusOK
}

// ServeHTTP implements http.Handler.
func (e *early) ServeHTTP(w http.ResponseWriter, r *http.Request) { w.WriteHeader(e.status(r)) }

// serve answers the requests of a connection of HTTP/1.1. If it does not read bodies, it takes them for
// requests.
func (e *early) serve(c net.Conn, reads bool) {
	for in := bufio.NewReader(c); ; {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		status := e.status(r)
		_, _ = fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Length: 0\r\n\r\n", status, http.StatusText(status))
		if reads {
			_, _ = io.Copy(io.Discard, r.Body)
		}
	}
}

// start starts a server that speaks the protocol, and returns its URL.
func (e *early) start(t *testing.T, protocol string) string {
	secure := httptest.NewUnstartedServer(e)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(secure.Close)
	switch protocol {
	case "http":
		return "http://" + scriptedServer(t, func(c net.Conn, _ *bufio.Reader) { e.serve(c, false) })
	case "https":
		config := &tls.Config{Certificates: secure.TLS.Certificates}
		return "https://" + scriptedServer(t, func(c net.Conn, _ *bufio.Reader) {
			e.serve(tls.Server(c, config), true)
		})
	case "h2c":
		return h2cServer(t, e.ServeHTTP)
	}
	return secure.URL
}

// TestCVE_2024_24791 checks what becomes of connections when a server answers a request
// with "Expect: 100-continue" before it has the body (also golang/go#67555): the body,
// whether it is sent or not, must never be taken for a request, and the client must not be
// asked for it. The library, which speaks to servers with TLS or HTTP/2, asks for it if a
// server of HTTP/1.1 keeps the connection, which must read it then.
func TestCVE_2024_24791(t *testing.T) {
	for protocol, version := range map[string]string{"http": "HTTP/1.1", "https": "HTTP/1.1", "h2c": "HTTP/2.0",
		"https with HTTP/2": "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			e := new(early)
			w := newWorld(t, model.Static{Transport: model.ServersTransport{InsecureSkipVerify: true}})
			w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"}},
				map[string]*model.Service{"s@file": serviceOf(e.start(t, protocol))})
			w.expectEarly(protocol == "https")
			e.mu.Lock()
			defer e.mu.Unlock()
			for _, path := range e.paths {
				if path != version+" /upload" && path != version+" /next" {
					t.Errorf("the server has received %s", path)
				}
			}
		})
	}
}

// expectEarly sends requests with "Expect: 100-continue", and others after them. asks says that the
// client may be asked for the body.
func (w *world) expectEarly(asks bool) {
	w.t.Helper()
	const body = "GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n"
	head := fmt.Sprintf("POST /upload HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
		len(body))
	for name, sent := range map[string]string{"the body is not sent": "", "the body is sent at once": body,
		"a request follows instead of the body": last} {
		for range 3 {
			got := w.send(head + sent)
			if asks {
				got = strings.TrimPrefix(got, "HTTP/1.1 100 Continue\r\n\r\n")
			}
			if !strings.HasPrefix(got, "HTTP/1.1 403 ") || strings.Count(got, "HTTP/1.1") != 1 {
				w.t.Errorf("%s: got %q, want 403 and the end", name, got)
			}
			if status, _ := w.get("http://a.test/next"); status != http.StatusOK {
				w.t.Errorf("%s: the next request gets %d", name, status)
			}
		}
	}
}
