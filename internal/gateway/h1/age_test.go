package h1

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"fairlead/internal/gateway/h1/h1test"
)

// TestMaxRequests checks that the last response announces the end of the connection, also if the connection was
// parked meanwhile.
func TestMaxRequests(t *testing.T) {
	t.Parallel()
	s := &Server{Handler: reply, MaxRequests: 3}
	addr := newServer(t, s)
	c, br := dialFront(t, addr)
	ask(t, c, br)
	awaitParked(t, s, 1)
	ask(t, c, br)
	if _, err := io.WriteString(c, h1test.Get); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(br)
	if err != nil || !strings.Contains(string(answer), "Connection: close\r\n") {
		t.Errorf("the third response and the end: %q, %v", answer, err)
	}
}

// TestMaxAge moves the begin of connections into the past.
func TestMaxAge(t *testing.T) {
	for seconds, want := range map[int64]bool{59: false, 60: true, 100: true} {
		s := &Server{Handler: reply, MaxAge: time.Minute}
		s.setClock()
		server, client := h1test.TCPPair(t)
		c := newConn(s, server)
		c.opened = s.now.Load() - seconds
		go c.serve()
		if _, err := io.WriteString(client, h1test.Get); err != nil {
			t.Fatal(err)
		}
		_ = client.CloseWrite()
		answer, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil || answer.Close != want {
			t.Errorf("after %d s: %+v, %v, want the end: %v", seconds, answer, err, want)
		}
	}
}
