package h1

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"fairlead/internal/gateway/h1/forward"
	"fairlead/internal/gateway/h1/h1test"
	"fairlead/internal/gateway/h1/wire"
	"fairlead/test/place"
)

func dialFront(t *testing.T, addr string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(place.Timeout))
	return c, bufio.NewReader(c)
}

func expectLine(t *testing.T, br *bufio.Reader, want string) {
	t.Helper()
	if got, err := br.ReadString('\n'); err != nil || got != want {
		t.Fatalf("got line %q, error %v, want %q", got, err, want)
	}
}

// echo returns each request's body, chunked, while it arrives.
func echo(c net.Conn, br *bufio.Reader, _ int) {
	for {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		buf := make([]byte, 1000)
		for err == nil {
			var n int
			n, err = r.Body.Read(buf)
			if n > 0 {
				_, _ = io.WriteString(c, strings.TrimSuffix(chunkedText(buf[:n], n), "0\r\n\r\n"))
			}
		}
		end := "0\r\n"
		for key := range r.Trailer {
			end += key + ": " + r.Trailer.Get(key) + "\r\n"
		}
		_, _ = io.WriteString(c, end+"\r\n")
	}
}

func TestForwardsBodies(t *testing.T) {
	bodies := map[string]string{"empty": "", "short": "abc", "long": string(text),
		"two parts": string(text[:forward.MaxInline+1])}
	onFronts(t, func(t *testing.T, front string) {
		addr, f := gateway(t, front, h1test.NewBackend(t, echo))
		client := &http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		for name, body := range bodies {
			for kind, reader := range map[string]io.Reader{"length": strings.NewReader(body),
				"chunked": io.MultiReader(strings.NewReader(body))} {
				res, err := client.Post("http://"+addr, "text/plain", reader)
				if err != nil {
					t.Fatalf("%s, %s: %v", name, kind, err)
				}
				got, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if err != nil || string(got) != body {
					t.Fatalf("%s, %s: got %d bytes of %d, error %v", name, kind, len(got), len(body), err)
				}
			}
		}
		if got := f.pool.Counters(); got.Dialed != 1 || got.Requests != 8 {
			t.Errorf("counters %+v, want 8 requests on one connection", got)
		}
	})
}

// Both directions must move at once: each part is sent after the echo of the one before.
func TestReadsResponseWhileSending(t *testing.T) {
	onFronts(t, func(t *testing.T, front string) {
		addr, _ := gateway(t, front, h1test.NewBackend(t, echo))
		c, br := dialFront(t, addr)
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nTrailer: X-End\r\n"+
			"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"b", "c"} {
			if _, err := io.ReadFull(res.Body, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(c, "1\r\n"+part+"\r\n")
		}
		_, _ = io.WriteString(c, "0\r\nX-End: yes\r\n\r\n")
		rest, err := io.ReadAll(res.Body)
		if err != nil || string(rest) != "c" || res.Trailer.Get("X-End") != "yes" {
			t.Errorf("got %q, trailer %v, error %v", rest, res.Trailer, err)
		}
	})
}

// The server answers and closes before it has the body.
func TestEarlyResponse(t *testing.T) {
	onFronts(t, func(t *testing.T, front string) {
		addr, f := gateway(t, front, h1test.NewBackend(t, func(c net.Conn, br *bufio.Reader, _ int) {
			_, _ = h1test.ReadRequestHead(br)
			_, _ = io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 5\r\n\r\nlarge")
			_, _ = io.Copy(io.Discard, br)
		}))
		c, br := dialFront(t, addr)
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\nabc")
		res, err := http.ReadResponse(br, nil)
		if err != nil || res.StatusCode != 413 {
			t.Fatalf("got %v, error %v, want 413", res, err)
		}
		if body, err := io.ReadAll(res.Body); string(body) != "large" {
			t.Errorf("got %q, error %v", body, err)
		}
		if got := f.pool.Counters(); got.Idle != 0 {
			t.Errorf("a connection with half a request is idle: %+v", got)
		}
	})
}

func TestClientEndsWithinItsBody(t *testing.T) {
	onFronts(t, func(t *testing.T, front string) {
		begun, ended := make(chan struct{}), make(chan error, 1)
		addr, f := gateway(t, front, h1test.NewBackend(t, func(_ net.Conn, br *bufio.Reader, _ int) {
			_, _ = h1test.ReadRequestHead(br)
			begun <- struct{}{}
			_, err := io.Copy(io.Discard, br)
			ended <- err
		}))
		for _, end := range []func(*net.TCPConn){func(c *net.TCPConn) { _ = c.CloseWrite() }, reset} {
			c, _ := dialFront(t, addr)
			_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nabc")
			<-begun
			end(c.(*net.TCPConn))
			<-ended
			if e := <-f.errors; !e.Client && e.Status() != wire.StatusClientClosedRequest || !e.BodyRead ||
				e.Repeatable("PUT") {
				t.Errorf("error %+v, want the client's", e)
			}
		}
	})
}

func TestExpectContinue(t *testing.T) {
	request := "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
	onFronts(t, func(t *testing.T, front string) {
		t.Run("continue", func(t *testing.T) {
			addr, _ := gateway(t, front, h1test.NewBackend(t, func(c net.Conn, br *bufio.Reader, _ int) {
				head, _ := h1test.ReadRequestHead(br)
				if !strings.Contains(head, "Expect: 100-continue\r\n") {
					return
				}
				_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
				body := make([]byte, 3)
				_, _ = io.ReadFull(br, body)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"+string(body))
			}))
			c, br := dialFront(t, addr)
			_, _ = io.WriteString(c, request)
			expectLine(t, br, "HTTP/1.1 100 Continue\r\n")
			expectLine(t, br, "\r\n")
			_, _ = io.WriteString(c, "abc")
			res, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, _ := io.ReadAll(res.Body); string(body) != "abc" {
				t.Errorf("got %q", body)
			}
		})
		t.Run("refused", func(t *testing.T) {
			addr, _ := gateway(t, front, h1test.NewBackend(t, func(c net.Conn, br *bufio.Reader, _ int) {
				_, _ = h1test.ReadRequestHead(br)
				_, _ = io.WriteString(c, "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n")
				_, _ = br.ReadByte()
			}))
			c, br := dialFront(t, addr)
			_, _ = io.WriteString(c, request)
			expectLine(t, br, "HTTP/1.1 417 Expectation Failed\r\n")
		})
	})
}

func TestEarlyHints(t *testing.T) {
	onFronts(t, func(t *testing.T, front string) {
		addr, _ := gateway(t, front, h1test.NewBackend(t, answers("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"+
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")))
		c, br := dialFront(t, addr)
		_, _ = io.WriteString(c, h1test.Get)
		hints, err := http.ReadResponse(br, nil)
		if err != nil || hints.StatusCode != 103 || hints.Header.Get("Link") != "</a.css>" {
			t.Fatalf("got %v, error %v, want 103 with Link", hints, err)
		}
		res, err := http.ReadResponse(br, nil)
		if err != nil || res.StatusCode != 200 || res.Header["Link"] != nil {
			t.Errorf("got %v, error %v, want 200 without Link", res, err)
		}
	})
}

// The head and each part arrive although the response does not end.
func TestPassesOnWhatIsThere(t *testing.T) {
	heads := map[string]string{"events": "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n",
		"length": "Content-Length: 100\r\n", "to the end": ""}
	onFronts(t, func(t *testing.T, front string) {
		for name, head := range heads {
			next := make(chan string)
			addr, _ := gateway(t, front, h1test.NewBackend(t, func(c net.Conn, br *bufio.Reader, _ int) {
				_, _ = h1test.ReadRequestHead(br)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+head+"\r\n")
				for part := range next {
					if strings.Contains(head, "chunked") {
						part = strings.TrimSuffix(chunkedText([]byte(part), 100), "0\r\n\r\n")
					}
					_, _ = io.WriteString(c, part)
				}
			}))
			c, br := dialFront(t, addr)
			_, _ = io.WriteString(c, h1test.Get)
			res, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, part := range []string{"one", "two"} {
				next <- part
				got := make([]byte, 3)
				if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != part {
					t.Fatalf("%s: got %q, error %v, want %q", name, got, err, part)
				}
			}
			close(next)
		}
	})
}

func TestUpgrade(t *testing.T) {
	onFronts(t, func(t *testing.T, front string) {
		addr, f := gateway(t, front, h1test.NewBackend(t, func(c net.Conn, br *bufio.Reader, _ int) {
			head, _ := h1test.ReadRequestHead(br)
			if !strings.Contains(head, "Upgrade: websocket\r\n") || !strings.Contains(head, "Connection: Upgrade\r\n") {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n"+
				"X-Accept: yes\r\n\r\nhello")
			_, _ = io.Copy(c, br)
			_, _ = io.WriteString(c, "end")
		}))
		c, br := dialFront(t, addr)
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
		res, err := http.ReadResponse(br, nil)
		if err != nil || res.StatusCode != 101 || res.Header.Get("X-Accept") != "yes" ||
			res.Header.Get("Upgrade") != "WebSocket" {
			t.Fatalf("got %v, error %v, want 101", res, err)
		}
		go func() {
			_, _ = c.Write(text)
			_ = c.(*net.TCPConn).CloseWrite()
		}()
		got, err := io.ReadAll(br)
		if want := "hello" + string(text) + "end"; err != nil || !bytes.Equal(got, []byte(want)) {
			t.Errorf("got %d bytes, error %v, want %d", len(got), err, len(want))
		}
		if got := f.pool.Counters(); got.Open != 0 {
			t.Errorf("counters %+v: the tunnel counts as a connection of the pool", got)
		}
	})
}

// reset closes a connection with RST.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
