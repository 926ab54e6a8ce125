package h1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/gateway/h1/h1test"
	"fairlead/internal/gateway/h1/wire"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

// echoes answers with the request's path and body. Upgraded connections send all back.
var echoes = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		body, err := io.ReadAll(r.Body)
		fmt.Fprint(w, r.URL.Path, " ", string(body), err)
		return
	}
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
	_, _ = io.Copy(c, rw)
})

func requestFor(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n" }

// expect reads the next response and compares its body.
func expect(t *testing.T, br *bufio.Reader, want string) {
	t.Helper()
	response, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatalf("instead of %q: %v", want, err)
	}
	if got, err := io.ReadAll(response.Body); err != nil || string(got) != want {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

// TestMixedRequests sends requests of different kinds on one connection: pipelined, in parts, with bodies, an upgrade.
func TestMixedRequests(t *testing.T) {
	c, br := dialFront(t, newServer(t, &Server{Handler: echoes}))
	send := func(text string) { _, _ = io.WriteString(c, text) } // see the response
	for range 3 {
		send(requestFor("/1"))
		expect(t, br, "/1 <nil>")
		send(requestFor("/2") + requestFor("/3") + requestFor("/4"))
		expect(t, br, "/2 <nil>")
		expect(t, br, "/3 <nil>")
		expect(t, br, "/4 <nil>")
		send(requestFor("/5") + "GET /6 HTTP/1.1\r\nHo")
		expect(t, br, "/5 <nil>")
		send("st: a\r\n\r\n")
		expect(t, br, "/6 <nil>")
		send(requestFor("/7"))
		expect(t, br, "/7 <nil>")
		send("GET /8")
		send(" HTTP/1.1\r\nHost: a\r\n\r")
		send("\n")
		expect(t, br, "/8 <nil>")
		send("POST /9 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbo")
		send("dy" + requestFor("/10"))
		expect(t, br, "/9 body<nil>")
		expect(t, br, "/10 <nil>")
		send("POST /11 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
		send("4\r\nbody\r\n0\r\n\r\n")
		expect(t, br, "/11 body<nil>")
	}
	send(requestFor("/12"))
	expect(t, br, "/12 <nil>")
	send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nfirst")
	if response, err := http.ReadResponse(br, nil); err != nil || response.StatusCode != 101 {
		t.Fatal(response, err)
	}
	send("second")
	_ = c.(*net.TCPConn).CloseWrite()
	if all, err := io.ReadAll(br); err != nil || string(all) != "firstsecond" {
		t.Errorf("after the upgrade: %q, %v", all, err)
	}
}

// TestRequestsInParts sends random requests in random parts on several connections at once: the responses
// must come in order, and none may be missing.
func TestRequestsInParts(t *testing.T) {
	addr := newServer(t, &Server{Handler: echoes})
	var clients sync.WaitGroup
	for seed := range uint64(8) {
		c, br := dialFront(t, addr)
		clients.Go(func() {
			random := rand.New(rand.NewPCG(seed, 0))
			for n := range 200 {
				if got, want := sendParts(c, br, random, n); got != want {
					t.Errorf("seed %d, round %d: got %q, want %q", seed, n, got, want)
					return
				}
			}
		})
	}
	clients.Wait()
}

// sendParts sends up to three requests, each part with a write of its own, and reads their responses.
func sendParts(c net.Conn, br *bufio.Reader, random *rand.Rand, n int) (got, want string) {
	text, count := "", 1+random.IntN(3)
	for i := range count {
		path := fmt.Sprintf("/%d-%d", n, i)
		switch random.IntN(4) {
		case 0:
			text += "POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"
			want += path + " body<nil>\n"
		case 1:
			text += "POST " + path + " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
			want += path + " body<nil>\n"
		default:
			text += requestFor(path)
			want += path + " <nil>\n"
		}
	}
	for text != "" {
		part := len(text)
		if random.IntN(3) > 0 {
			part = 1 + random.IntN(part)
		}
		_, _ = io.WriteString(c, text[:part]) // see the responses
		text = text[part:]
	}
	for range count {
		response, err := http.ReadResponse(br, nil)
		if err != nil {
			return got + err.Error(), want
		}
		body, err := io.ReadAll(response.Body)
		if got += string(body) + "\n"; err != nil {
			return got + err.Error(), want
		}
	}
	return got, want
}

// early serves a connection whose client has already sent text, and perhaps its end. The runtime's poller
// has reported them together, before the server reads: so it does to an entry point, which looks at the
// first bytes.
func early(t *testing.T, s *Server, text string, end bool) *bufio.Reader {
	t.Helper()
	large := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<20) })
	}}
	l, err := large.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, br := dialFront(t, l.Addr().String())
	go func() {
		_, _ = io.WriteString(client, text)
		if end {
			_ = client.(*net.TCPConn).CloseWrite()
		}
	}()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	raw := wire.RawOf(c)
	for began := time.Now(); !hasArrived(raw, len(text), end); runtime.Gosched() {
		if time.Since(began) > place.Timeout {
			t.Fatal("the request does not arrive")
		}
	}
	// The report may have come already; then the deadline ends the wait for it.
	_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	waited := false
	_ = raw.Read(func(uintptr) bool {
		was := waited
		waited = true
		return was
	})
	_ = c.SetReadDeadline(time.Time{})
	ended := make(chan struct{})
	own := newConn(s, c)
	own.ended = func() { close(ended) }
	s.setClock()
	s.timer = time.NewTimer(0) // no inspection parks the connection, however slow the client is
	s.add(own)
	go s.run(own)
	t.Cleanup(func() {
		_ = s.Shutdown(context.Background())
		<-ended
	})
	return br
}

// hasArrived returns true if the socket has n bytes to read and, if end is set, the peer's end behind them.
func hasArrived(raw syscall.RawConn, n int, end bool) (all bool) {
	_ = raw.Control(func(fd uintptr) {
		have, _ := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		all = have >= n && (!end || err == nil && info.State == wire.TCPCloseWait)
	})
	return all
}

// TestHalfClosedClient checks that the end of a client which closes its side behind the request is seen
// at once: not only when the connection is parked.
func TestHalfClosedClient(t *testing.T) {
	s := &Server{Handler: echoes}
	br := early(t, s, requestFor("/1"), true)
	expect(t, br, "/1 <nil>")
	if _, err := br.ReadByte(); err != io.EOF {
		t.Errorf("got %v, want the end", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parking.poll != nil {
		t.Error("the connection was parked before")
	}
}

// TestFullBuffer checks that a request is served which arrived behind one that fills the buffer.
func TestFullBuffer(t *testing.T) {
	s := &Server{Handler: echoes}
	head := "GET /1 HTTP/1.1\r\nHost: a\r\nA: "
	head += strings.Repeat("b", wire.BufferSize-len(head)-4) + "\r\n\r\n"
	br := early(t, s, head+requestFor("/2"), false)
	expect(t, br, "/1 <nil>")
	expect(t, br, "/2 <nil>")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parking.poll != nil {
		t.Error("the connection was parked between the requests")
	}
}

// TestShutdownBetweenRequests ends servers while clients send requests: each gets whole responses,
// then the end.
func TestShutdownBetweenRequests(t *testing.T) {
	for round := range 20 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{Handler: echoes}
		var all sync.WaitGroup
		all.Go(func() { _ = s.Serve(l) })
		begun := make(chan struct{}, 8)
		for range cap(begun) {
			c, br := dialFront(t, l.Addr().String())
			all.Go(func() {
				for n := 0; ; n++ {
					_, _ = io.WriteString(c, h1test.Get) // see the response
					response, err := http.ReadResponse(br, nil)
					if err != nil {
						if n <= round {
							t.Errorf("response %d: %v", n, err)
							begun <- struct{}{}
						}
						return
					}
					if body, err := io.ReadAll(response.Body); err != nil || string(body) != "/a <nil>" {
						t.Errorf("response %d: %q, %v", n, body, err)
					}
					if n == round {
						begun <- struct{}{}
					}
				}
			})
		}
		for range cap(begun) {
			<-begun
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		all.Wait()
	}
}

// TestDrainAfterRequest checks that the response after Drain is the last one.
func TestDrainAfterRequest(t *testing.T) {
	s := &Server{Handler: echoes}
	c, br := dialFront(t, newServer(t, s))
	_, _ = io.WriteString(c, requestFor("/1"))
	expect(t, br, "/1 <nil>")
	s.Drain()
	_, _ = io.WriteString(c, requestFor("/2"))
	rest, err := io.ReadAll(br)
	if err != nil || strings.Count(string(rest), "Connection: close\r\n") != 1 ||
		!strings.HasSuffix(string(rest), "/2 <nil>") {
		t.Errorf("got %q, %v", rest, err)
	}
}

// TestShutdownDoesNotWaitForHandlers checks that the end of its context ends Shutdown, although handlers
// ignore theirs.
func TestShutdownDoesNotWaitForHandlers(t *testing.T) {
	started, release := make(chan struct{}, 2), make(chan struct{})
	s := &Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		started <- struct{}{}
		<-release
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	var readers []*bufio.Reader
	for range cap(started) {
		c, br := dialFront(t, l.Addr().String())
		_, _ = io.WriteString(c, h1test.Get)
		<-started
		readers = append(readers, br)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(release)
	for _, br := range readers {
		if all, _ := io.ReadAll(br); len(all) > 0 {
			t.Errorf("got %q after Shutdown", all)
		}
	}
	serving.Wait()
}
