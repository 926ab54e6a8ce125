package h1

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"fairlead/internal/gateway/h1/h1test"
	"fairlead/internal/gateway/h1/wire"
)

// serveHandler starts a server with a handler.
func serveHandler(t *testing.T, h http.HandlerFunc) string {
	return newServer(t, &Server{Handler: h})
}

// exchangeText sends text on a new connection and returns all that comes back.
func exchangeText(t *testing.T, addr, text string) string {
	t.Helper()
	c, br := dialFront(t, addr)
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	_ = c.(*net.TCPConn).CloseWrite()
	all, err := io.ReadAll(br)
	if err != nil {
		t.Fatalf("after %q: %v", all, err)
	}
	return string(all)
}

// withoutDate removes the Date fields.
func withoutDate(t *testing.T, s string) string {
	for {
		before, after, found := strings.Cut(s, "Date: ")
		if !found {
			return s
		}
		date, after, _ := strings.Cut(after, "\r\n")
		if _, err := http.ParseTime(date); err != nil {
			t.Errorf("date %q: %v", date, err)
		}
		s = before + after
	}
}

func TestResponseFraming(t *testing.T) {
	long := strings.Repeat("x", 3*outSize)
	handlers := map[string]http.HandlerFunc{
		"/empty": func(http.ResponseWriter, *http.Request) {},
		"/short": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "ab")
			_, _ = io.WriteString(w, "c")
		},
		"/length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "3")
			_, _ = io.WriteString(w, "abc")
		},
		"/flush": func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "abc")
		},
		"/held": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "abc")
			w.(http.Flusher).Flush()
		},
		"/long": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, long) },
		"/none": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
		"/same": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(304)
			if _, err := io.WriteString(w, "abc"); !errors.Is(err, http.ErrBodyNotAllowed) {
				panic(err)
			}
		},
		"/close": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") },
		"/split": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["A"] = []string{"b\r\nC: d", "e"}
			w.Header()["F\r\nG"] = []string{"h"}
		},
		"/trailer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "A")
			_, _ = io.WriteString(w, "abc")
			w.Header().Set("A", "b")
		},
		"/late": func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			w.Header().Set(http.TrailerPrefix+"C", "d")
			w.Header().Set("E", "too late")
		},
	}
	addr := serveHandler(t, func(w http.ResponseWriter, r *http.Request) { handlers[r.URL.Path](w, r) })
	const ok = "HTTP/1.1 200 OK\r\n"
	keep, end := "Connection: keep-alive\r\n\r\n", "Connection: close\r\n\r\n"
	cases := []struct{ request, want string }{
		{"GET /empty 1", ok + "Content-Length: 0\r\n\r\n"},
		{"GET /empty 0", ok + "Content-Length: 0\r\n" + keep},
		{"GET /short 1", ok + "Content-Length: 3\r\n\r\nabc"},
		{"HEAD /short 1", ok + "Content-Length: 3\r\n\r\n"},
		{"HEAD /empty 1", ok + "\r\n"},
		{"GET /length 1", ok + "Content-Length: 3\r\n\r\nabc"},
		{"HEAD /length 1", ok + "Content-Length: 3\r\n\r\n"},
		{"GET /flush 1", ok + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
		{"GET /held 1", ok + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
		{"GET /flush 0", ok + end + "abc"},
		{"HEAD /flush 1", ok + "\r\n"},
		{"GET /long 1", ok + "Transfer-Encoding: chunked\r\n\r\n6000\r\n" + long + "\r\n0\r\n\r\n"},
		{"GET /long 0", ok + end + long},
		{"GET /none 1", "HTTP/1.1 204 No Content\r\n\r\n"},
		{"GET /same 1", "HTTP/1.1 304 Not Modified\r\n\r\n"},
		{"GET /close 1", ok + "Content-Length: 0\r\n" + end},
		{"GET /split 1", ok + "A: e\r\nContent-Length: 0\r\n\r\n"},
		{"GET /trailer 1", ok + "Trailer: A\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n"},
		{"GET /late 1", ok + "Transfer-Encoding: chunked\r\n\r\n0\r\nC: d\r\n\r\n"},
	}
	for _, c := range cases {
		words := strings.Fields(c.request)
		text := fmt.Sprintf("%s %s HTTP/1.%s\r\nHost: a\r\nConnection: keep-alive\r\n\r\n", words[0], words[1], words[2])
		if got := withoutDate(t, exchangeText(t, addr, text)); got != c.want {
			t.Errorf("%s: got %.300q, want %.300q", c.request, got, c.want)
		}
	}
}

func TestRequests(t *testing.T) {
	addr := serveHandler(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %v %q %v|", r.Method, r.Host, r.RequestURI, r.Header["X"], body, err)
	})
	pipelined := "GET /1 HTTP/1.1\r\nHost: a\r\nX: y\r\nX: z\r\n\r\n" +
		"POST /2 HTTP/1.1\r\nHost: b\r\nContent-Length: 3\r\n\r\nabc" +
		"POST /3 HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" +
		"GET http://e/4 HTTP/1.1\r\nHost: d\r\n\r\n" +
		"GET /5 HTTP/1.0\r\n\r\nGET /not-read HTTP/1.1\r\nHost: a\r\n\r\n"
	got := exchangeText(t, addr, pipelined)
	var bodies []string
	for _, part := range strings.Split(got, "\r\n\r\n")[1:] {
		body, _, _ := strings.Cut(part, "|")
		bodies = append(bodies, body)
	}
	want := []string{`GET a /1 [y z] "" <nil>`, `POST b /2 [] "abc" <nil>`, `POST c /3 [] "abc" <nil>`,
		`GET e http://e/4 [] "" <nil>`, `GET  /5 [] "" <nil>`}
	if strings.Join(bodies, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(bodies, "\n"), strings.Join(want, "\n"))
	}
}

func TestRefusesRequests(t *testing.T) {
	addr := serveHandler(t, func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") })
	smuggled := "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
	cases := map[string]int{
		"GET / HTTP/1.1\r\n\r\n":                                                                         400,
		"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n":                                                   400,
		"GET / HTTP/1.1\r\nHost: a b\r\n\r\n":                                                            400,
		"GET  / HTTP/1.1\r\nHost: a\r\n\r\n":                                                             400,
		"GET rootless HTTP/1.1\r\nHost: a\r\n\r\n":                                                       400,
		"GET / HTTP/1.1\r\nHost: a\r\nA : b\r\n\r\n":                                                     400,
		"GET / HTTP/1.1\r\n Host: a\r\n\r\n":                                                             400,
		"GET / HTTP/1.1\r\nHost: a\r\nA: \x00\r\n\r\n":                                                   400,
		"GET / HTTP/2.0\r\nHost: a\r\n\r\n":                                                              505,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0":         400,
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\ncontent-length: 1\r\n\r\n0":         400,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n0":                  400,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n":                                       400,
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n":                         501,
		"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n":                               400,
		"GET / HTTP/1.1\r\nHost: a\r\nA: " + strings.Repeat("b", wire.BufferSize) + "\r\n\r\n":           431,
		"GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("A: b\r\n", wire.BufferSize/6) + "C: d\r\n\r\n": 431,
	}
	for text, status := range cases {
		got := exchangeText(t, addr, text+smuggled)
		if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", status)) || strings.Count(got, "Date: ") != 1 ||
			!strings.Contains(got, "Connection: close\r\n") {
			t.Errorf("%.200q: got %.300q, want status %d and the end", text, got, status)
		}
	}
}

func TestMalformedBodiesEndTheConnection(t *testing.T) {
	errs := make(chan error, 1)
	addr := serveHandler(t, func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		errs <- err
	})
	for _, body := range []string{"3\nabc\r\n0\r\n\r\n", "3\r\nabcd\r\n0\r\n\r\n", "x\r\n", "3\r\nab",
		"1;" + strings.Repeat("a", wire.MaxChunkLine) + "\r\nb\r\n0\r\n\r\n"} {
		got := exchangeText(t, addr, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"+body+h1test.Get)
		if err := <-errs; err == nil || strings.Count(got, "HTTP/1.1") != 1 {
			t.Errorf("%.40q: error %v, responses %q", body, err, got)
		}
	}
}

// A body that the handler has not read must not become the next request.
func TestUnreadBody(t *testing.T) {
	addr := serveHandler(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })
	for _, size := range []int{10, 100 << 10, 2 * maxDiscard} {
		body := h1test.Get + strings.Repeat("x", size)
		text := fmt.Sprintf("POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%sGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
			len(body), body)
		c, br := dialFront(t, addr)
		go func() { _, _ = io.WriteString(c, text) }()
		first, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		path, _ := io.ReadAll(first.Body)
		second, err := http.ReadResponse(br, nil)
		if string(path) != "/1" || (err == nil) != (size < maxDiscard) {
			t.Fatalf("%d bytes: first %q, second %v, error %v", size, path, second, err)
		}
		if err == nil {
			if path, _ := io.ReadAll(second.Body); string(path) != "/2" {
				t.Errorf("%d bytes: second %q", size, path)
			}
		}
	}
}

func TestPanics(t *testing.T) {
	panicked := make(chan any, 1)
	addr := newServer(t, &Server{Panicked: func(_ *http.Request, v any) { panicked <- v },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "abc")
			if r.URL.Path == "/abort" {
				panic(http.ErrAbortHandler)
			}
			panic("broken")
		})})
	for _, path := range []string{"/abort", "/bug"} {
		if got := exchangeText(t, addr, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n"); got != "" {
			t.Errorf("%s: got %q, want the end", path, got)
		}
	}
	if v := <-panicked; v != "broken" {
		t.Errorf("got panic %v", v)
	}
}

// The end of the connection must not look like the end of the body.
func TestPanicResetsResponsesWithoutLength(t *testing.T) {
	addr := serveHandler(t, func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	c, br := dialFront(t, addr)
	_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
	if all, err := io.ReadAll(br); err == nil {
		t.Errorf("got %q and the end, want a reset", all)
	}
}

func TestTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	config := s.TLS.Clone()
	config.NextProtos = nil
	own := &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.TLS.HandshakeComplete, r.TLS.ServerName)
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- own.Serve(tls.NewListener(l, config)) }()
	client := s.Client()
	for range 2 {
		res, err := client.Get("https://" + l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if string(body) != "true" {
			t.Errorf("got %q", body)
		}
	}
	client.CloseIdleConnections()
	if err := own.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	<-done
}

func TestClientGoneCancelsTheRequest(t *testing.T) {
	started, ended := make(chan struct{}), make(chan error, 2)
	addr := serveHandler(t, func(_ http.ResponseWriter, r *http.Request) {
		derived, cancel := context.WithCancel(r.Context())
		defer cancel()
		close(started)
		<-derived.Done()
		ended <- r.Context().Err()
	})
	c, _ := dialFront(t, addr)
	_, _ = io.WriteString(c, h1test.Get)
	<-started
	_ = c.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the context ended with %v", err)
	}
}

func TestContextEndsWithTheRequest(t *testing.T) {
	contexts := make(chan context.Context, 2)
	addr := serveHandler(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/a" {
			_ = r.Context().Done()
		}
		if r.Context().Err() != nil {
			t.Error("the context of a new request has ended")
		}
		contexts <- r.Context()
	})
	exchangeText(t, addr, h1test.Get+h1test.Get)
	<-(<-contexts).Done()
	<-(<-contexts).Done()
}
