package h1

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"fairlead/internal/gateway/h1/h1test"
	"fairlead/internal/gateway/h1/wire"
	"fairlead/test/place"
)

func TestServerTimeLimits(t *testing.T) {
	failed := map[string]chan error{"body": make(chan error, 1), "write": make(chan error, 1)}
	waiting := newServer(t, &Server{HeaderTimeout: time.Second, IdleTimeout: time.Second, Handler: echoes})
	// A client that has no CPU time before its request keeps its connection to this server.
	busy := newServer(t, &Server{ReadTimeout: time.Second, WriteTimeout: time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var err error
			switch r.URL.Path {
			case "/write":
				for err == nil {
					_, err = w.Write(text)
				}
				failed["write"] <- err
			case "/body":
				_, err = io.Copy(io.Discard, r.Body)
				failed["body"] <- err
			}
		})})
	for name, text := range map[string]string{"new": "", "head": "GET / HT", "idle": h1test.Get} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, br := dialFront(t, waiting)
			_, _ = io.WriteString(c, text)
			if _, err := io.Copy(io.Discard, br); err != nil {
				t.Errorf("got %v, want the end", err)
			}
		})
	}
	for name, text := range map[string]string{
		"body":  "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab",
		"write": "GET /write HTTP/1.1\r\nHost: a\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := dialFront(t, busy)
			_, _ = io.WriteString(c, text)
			select {
			case err := <-failed[name]:
				if !wire.IsTimeout(err) {
					t.Errorf("the handler got %v, want a timeout", err)
				}
			case <-time.After(place.Timeout):
				t.Error("the client keeps its connection")
			}
		})
	}
}

func TestShutdown(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	s := &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(started)
			<-release
		}
		_, _ = io.WriteString(w, "done")
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	idle, idleReader := dialFront(t, l.Addr().String())
	_, _ = io.WriteString(idle, h1test.Get)
	if _, err := http.ReadResponse(idleReader, nil); err != nil {
		t.Fatal(err)
	}
	_, _ = io.CopyN(io.Discard, idleReader, 4)
	_, newReader := dialFront(t, l.Addr().String())
	busy, busyReader := dialFront(t, l.Addr().String())
	_, _ = io.WriteString(busy, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
	<-started
	ended, cancel := context.WithCancel(context.Background())
	down := make(chan error, 1)
	go func() { down <- s.Shutdown(ended) }()
	defer cancel()
	if _, err := idleReader.ReadByte(); err != io.EOF {
		t.Errorf("the idle connection got %v, want the end", err)
	}
	if _, err := newReader.ReadByte(); err != io.EOF {
		t.Errorf("the new connection got %v, want the end", err)
	}
	if err := <-served; err != http.ErrServerClosed {
		t.Errorf("Serve returned %v", err)
	}
	close(release)
	rest, err := io.ReadAll(busyReader)
	if err != nil || !strings.Contains(string(rest), "Connection: close\r\n") ||
		!strings.HasSuffix(string(rest), "done") {
		t.Errorf("the request in progress got %q, error %v", rest, err)
	}
	if err := <-down; err != nil {
		t.Errorf("Shutdown returned %v", err)
	}
}

func TestMaxConns(t *testing.T) {
	s := &Server{MaxConns: 1, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	addr := newServer(t, s)
	c, br := dialFront(t, addr)
	_, _ = io.WriteString(c, h1test.Get)
	if _, err := http.ReadResponse(br, nil); err != nil {
		t.Fatal(err)
	}
	_, second := dialFront(t, addr)
	if _, err := second.ReadByte(); err != io.EOF {
		t.Errorf("the second connection got %v, want the end", err)
	}
	if open, refused := s.Connections(); open != 1 || refused != 1 {
		t.Errorf("%d connections, %d refused", open, refused)
	}
}
