package serving

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead/test/place"
)

// TestUpgradeAttack asks for upgrades and sends the body of the request without an end, for a second or as
// long as FAIRLEAD_ATTACK says: the process must stay, and no client may get another protocol.
func TestUpgradeAttack(t *testing.T) {
	length := time.Second
	if text := os.Getenv("FAIRLEAD_ATTACK"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			return
		}
		conn, in, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(io.Discard, in)
	}))
	t.Cleanup(server.Close)
	c := begin(t, optionsAt(""), settings("127.0.0.1:0"), configOf(server.URL))
	pid, _ := c.Processes()
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for ctx.Err() == nil {
				attack(t, c.Address("web"))
			}
		})
	}
	clients.Wait()
	wantGet(t, "http://"+c.Address("web")+"/", "200 ")
	if now, _ := c.Processes(); now != pid {
		t.Errorf("the serving process %d has ended", pid)
	}
}

// attack sends one request, and chunks until the connection ends.
func attack(t *testing.T, address string) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(place.Timeout))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Transfer-Encoding: chunked\r\n\r\n")
		for chunk := "400\r\n" + strings.Repeat("x", 0x400) + "\r\n"; err == nil; {
			_, err = io.WriteString(conn, chunk)
		}
	}()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || response.StatusCode != http.StatusBadGateway {
		t.Errorf("got %v, %v, want 502", response, err)
	}
	_ = conn.Close()
	<-sent
}
