package admin

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// shutdownLimit is how long requests that are under way may take at the end.
const shutdownLimit = 5 * time.Second

// ServeUntil serves until ctx ends, and lets requests that are under way finish.
// Who has connected and asked nothing is not waited for.
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

// silent are the connections on which nothing was asked yet. Shutdown would wait
// for them for as long as it waits for requests.
type silent struct {
	mu    sync.Mutex
	conns map[net.Conn]bool
	ended bool
}

// note is told how a connection is (http.Server.ConnState).
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

// end closes them, and those that come.
func (s *silent) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for conn := range s.conns {
		conn.Close()
	}
}
