package h1

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"fairlead/internal/gateway/h1/h1test"
	"fairlead/internal/gateway/h1/wire"
)

const upgradeHead = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n"

// switches answers 101 when it has the head of a request, and sends back all that follows. Many servers of
// WebSocket ignore the body of a request like this.
func switches(c net.Conn, br *bufio.Reader, _ int) {
	if _, err := h1test.ReadRequestHead(br); err != nil {
		return
	}
	_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	_, _ = io.Copy(c, br)
}

// TestUpgradeBeforeTheBody lets the server change the protocol while the client still sends the body: the
// client must get 502, and its connection must close.
func TestUpgradeBeforeTheBody(t *testing.T) {
	cases := map[string]string{
		"chunked":          "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n",
		"chunked, no data": "Transfer-Encoding: chunked\r\n\r\n",
		"inside a chunk":   "Transfer-Encoding: chunked\r\n\r\n10\r\nbo",
		"last chunk only":  "Transfer-Encoding: chunked\r\n\r\n0\r\n",
		"length":           "Content-Length: 20000\r\n\r\n" + strings.Repeat("b", 19999),
		"long":             fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(text)+1, text),
		"expect":           "Expect: 100-continue\r\nContent-Length: 4\r\n\r\n",
		"expect, chunked":  "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n",
	}
	for name, rest := range cases {
		t.Run(name, func(t *testing.T) {
			addr, f := gateway(t, "h1", h1test.NewBackend(t, switches))
			c, br := dialFront(t, addr)
			_, _ = io.WriteString(c, upgradeHead+rest) // see the response
			response, err := http.ReadResponse(br, nil)
			if err != nil || response.StatusCode != http.StatusBadGateway || !response.Close {
				t.Fatalf("got %+v, %v, want 502 and the end of the connection", response, err)
			}
			if _, err := io.Copy(io.Discard, br); err != nil {
				t.Errorf("the connection does not end: %v", err)
			}
			if e := <-f.errors; e.Err != wire.ErrEarly || !e.Client || e.Started || f.pool.Counters().Open != 0 {
				t.Errorf("error %+v, counters %+v", e, f.pool.Counters())
			}
		})
	}
}

// TestUpgradeAfterTheBody changes the protocol when the body is complete. What follows it belongs to the
// other protocol, also if it has arrived with the body.
func TestUpgradeAfterTheBody(t *testing.T) {
	cases := map[string]struct{ rest, body string }{
		"none":       {"\r\n", ""},
		"short":      {"Content-Length: 4\r\n\r\nbody", "body"},
		"chunked":    {"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", "body"},
		"no chunks":  {"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ""},
		"long":       {fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(text), text), string(text)},
		"in chunks":  {"Transfer-Encoding: chunked\r\n\r\n" + chunkedText(text, 3000), string(text)},
		"to be read": {"Expect: 100-continue\r\nContent-Length: 4\r\n\r\nbody", "body"},
	}
	onFronts(t, func(t *testing.T, front string) {
		for name, test := range cases {
			t.Run(name, func(t *testing.T) {
				bodies := make(chan string, 1)
				addr, _ := gateway(t, front, h1test.NewBackend(t, func(c net.Conn, br *bufio.Reader, _ int) {
					r, err := http.ReadRequest(br)
					if err != nil {
						return
					}
					if r.Header.Get("Expect") != "" {
						_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
					}
					body, _ := io.ReadAll(r.Body)
					bodies <- string(body)
					_, _ = io.WriteString(c,
						"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
					_, _ = io.Copy(c, br)
				}))
				c, br := dialFront(t, addr)
				_, _ = io.WriteString(c, upgradeHead+test.rest+"first") // see the response
				if body := <-bodies; body != test.body {
					t.Fatalf("the server got a body of %d bytes, want %d", len(body), len(test.body))
				}
				response, err := http.ReadResponse(br, nil)
				for err == nil && response.StatusCode == http.StatusContinue {
					response, err = http.ReadResponse(br, nil)
				}
				if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
					t.Fatalf("got %+v, %v", response, err)
				}
				_, _ = io.WriteString(c, "second")
				_ = c.(*net.TCPConn).CloseWrite()
				if all, err := io.ReadAll(br); err != nil || string(all) != "firstsecond" {
					t.Errorf("after the upgrade: %q, %v", all, err)
				}
			})
		}
	})
}

// TestUpgradeWhileTheBodyArrives sends chunks without a pause while the server changes the protocol: no
// byte of one client may reach another, and no goroutine may use what another one has.
func TestUpgradeWhileTheBodyArrives(t *testing.T) {
	f := &forwarder{pool: newPool(t, h1test.NewBackend(t, switches).Addr), errors: make(chan *wire.Error, 40)}
	addr := newServer(t, &Server{Handler: f})
	var clients sync.WaitGroup
	for n := range 8 {
		chunk := "400\r\n" + strings.Repeat(string(rune('a'+n)), 0x400) + "\r\n"
		clients.Go(func() {
			for range 5 {
				c, br := dialFront(t, addr)
				clients.Go(func() {
					_, err := io.WriteString(c, upgradeHead+"Transfer-Encoding: chunked\r\n\r\n")
					for err == nil {
						_, err = io.WriteString(c, chunk)
					}
				})
				response, err := http.ReadResponse(br, nil)
				if err != nil || response.StatusCode != http.StatusBadGateway {
					t.Errorf("got %v, %v, want 502", response, err)
				}
				_ = c.Close()
			}
		})
	}
	clients.Wait()
}

// TestHijackNeedsTheWholeBody: the rest of a body is not data of the other protocol.
func TestHijackNeedsTheWholeBody(t *testing.T) {
	failed := make(chan error, 1)
	addr := newServer(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _, err := http.NewResponseController(w).Hijack()
		failed <- err
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	})})
	c, br := dialFront(t, addr)
	_, _ = io.WriteString(c, upgradeHead+"Content-Length: 4\r\n\r\nbody")
	expect(t, br, "body")
	if err := <-failed; err != errUnread {
		t.Errorf("Hijack returned %v", err)
	}
}
