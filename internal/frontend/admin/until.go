package admin

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// shutdownLimit is how long ServeUntil waits for running requests.
const shutdownLimit = 5 * time.Second

// ServeUntil serves until ctx ends, and then waits up to 5 s for running requests.
// It does not wait for connections without a request.
func ServeUntil(ctx context.Context, l net.Listener, s *http.Server) error {
	quiet := silent{conns: map[net.Conn]bool{}}
	s.ConnState = quiet.note
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	quiet.end()
	limit, cancel := context.WithTimeout(context.Background(), shutdownLimit)
	defer cancel()
	if err := s.Shutdown(limit); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// silent are the connections without a request so far. http.Server.Shutdown would
// wait for them as long as for requests.
type silent struct {
	mu    sync.Mutex
	conns map[net.Conn]bool
	ended bool
}

// note records a connection's state. It is a callback for http.Server.ConnState.
func (s *silent) note(conn net.Conn, is http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case is != http.StateNew:
		delete(s.conns, conn)
	case s.ended:
		conn.Close()
	default:
		s.conns[conn] = true
	}
}

// end closes the silent connections and all new ones.
func (s *silent) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for conn := range s.conns {
		conn.Close()
	}
}
