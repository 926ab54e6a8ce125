package h1

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"fairlead/internal/gateway/h1/h1test"
	"fairlead/test/place"
)

var reply = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })

// inspectLater inspects a server as if its connections had waited for some more seconds.
func inspectLater(s *Server, seconds int64) (open, parked int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.Add(seconds)
	for c := range s.conns {
		c.inspect()
	}
	s.resumeExpired()
	return s.open(), len(s.parking.conns)
}

// awaitParked inspects a server until n connections are parked.
func awaitParked(t *testing.T, s *Server, n int) {
	t.Helper()
	for deadline := time.Now().Add(place.Timeout); time.Now().Before(deadline); runtime.Gosched() {
		if open, parked := inspectLater(s, parkAfter); open == n && parked == n {
			return
		}
	}
	t.Fatalf("not all of %d connections are parked", n)
}

// ask sends a request with a body and checks that it comes back.
func ask(t *testing.T, c net.Conn, br *bufio.Reader) {
	t.Helper()
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody") // see the response
	response, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Error(err)
		return
	}
	if got, err := io.ReadAll(response.Body); err != nil || string(got) != "body" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestIdleConnectionsAreParked checks that connections that wait have no goroutine, serve further
// requests, and end with the server.
func TestIdleConnectionsAreParked(t *testing.T) {
	t.Parallel()
	s := &Server{Handler: reply}
	addr := newServer(t, s)
	c, br := dialFront(t, addr)
	for range 3 {
		ask(t, c, br)
		awaitParked(t, s, 1)
	}
	if open, _ := s.Connections(); open != 1 {
		t.Errorf("%d connections are open, want 1", open)
	}
	gone, goneReader := dialFront(t, addr)
	ask(t, gone, goneReader)
	awaitParked(t, s, 2)
	_ = gone.Close()
	awaitParked(t, s, 1)
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := br.ReadByte(); err != io.EOF {
		t.Errorf("the parked connection got %v at the end of the server, want its end", err)
	}
}

// TestParkedTLS does the same with TLS, and calls ended once.
func TestParkedTLS(t *testing.T) {
	t.Parallel()
	s := &Server{Handler: reply}
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	defer certified.Close()
	inner, outer := h1test.TCPPair(t)
	ended := make(chan struct{})
	secure := tls.Server(inner, &tls.Config{Certificates: certified.TLS.Certificates})
	go s.ServeConn(secure, func() {}, func() { close(ended) })
	c := tls.Client(outer, &tls.Config{InsecureSkipVerify: true})
	br := bufio.NewReader(c)
	for range 3 {
		ask(t, c, br)
		awaitParked(t, s, 1)
	}
	_ = c.Close()
	<-ended
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestParkedConnectionsTimeOut checks that the idle timeout counts from the end of the last request.
func TestParkedConnectionsTimeOut(t *testing.T) {
	t.Parallel()
	const idle = 100 * 365 * 24 * time.Hour // longer than awaitParked lets the connection wait
	s := &Server{Handler: reply, IdleTimeout: idle}
	c, br := dialFront(t, newServer(t, s))
	ask(t, c, br)
	awaitParked(t, s, 1)
	for deadline := time.Now().Add(place.Timeout); ; runtime.Gosched() {
		if open, _ := inspectLater(s, int64(idle/time.Second)+1); open == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the connection stays parked")
		}
	}
	if _, err := br.ReadByte(); err != io.EOF {
		t.Errorf("got %v, want the end", err)
	}
}

// TestParkingLosesNoRequest inspects all the time while clients send requests, some in two parts.
func TestParkingLosesNoRequest(t *testing.T) {
	t.Parallel()
	s := &Server{Handler: reply}
	addr := newServer(t, s)
	ctx, stop := context.WithCancel(t.Context())
	var inspecting, clients sync.WaitGroup
	parked := 0
	inspecting.Go(func() {
		for ; ctx.Err() == nil; runtime.Gosched() {
			_, n := inspectLater(s, parkAfter)
			parked = max(parked, n)
		}
	})
	for range 8 {
		c, br := dialFront(t, addr)
		clients.Go(func() {
			for range 300 {
				_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nCon") // see the response
				_, _ = io.WriteString(c, "nection: keep-alive\r\nContent-Length: 0\r\n\r\n")
				if response, err := http.ReadResponse(br, nil); err != nil || response.StatusCode != http.StatusOK {
					t.Errorf("%v, %v", response, err)
					return
				}
				ask(t, c, br)
			}
		})
	}
	clients.Wait()
	stop()
	inspecting.Wait()
	if parked == 0 {
		t.Error("no connection was parked")
	}
}
