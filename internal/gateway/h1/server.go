package h1

import (
	"context"
	"net"
	"net/http"
	"time"

	"fairlead/internal/gateway/goroutine"
)

// tick is the interval between two inspections of all connections.
const tick = time.Second

// Serve accepts connections until the listener is closed or Shutdown is called, which makes it return
// http.ErrServerClosed.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.draining.Load() {
		s.mu.Unlock()
		_ = l.Close()
		return http.ErrServerClosed
	}
	if s.listeners == nil {
		s.listeners = map[net.Listener]struct{}{}
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
	}()
	err := Accept(l, func(c net.Conn) { s.ServeConn(c, func() {}, func() {}) })
	if s.draining.Load() {
		return http.ErrServerClosed
	}
	return err
}

// ServeConn serves a connection and closes it at its end, unless a handler has taken it over. It calls
// heard when the first head of a request is complete, and ended at the end. It may return earlier: a
// connection that waits for a request needs no goroutine. A TLS connection must not have negotiated HTTP/2.
func (s *Server) ServeConn(nc net.Conn, heard, ended func()) {
	c := s.enter(nc, heard, ended)
	if c == nil {
		_ = nc.Close()
		ended()
		return
	}
	s.run(c)
}

// enter adds a connection. It returns nil if there are too many, if the server drains, or after a mistake.
func (s *Server) enter(nc net.Conn, heard, ended func()) (c *conn) {
	defer goroutine.Recover("begin a connection", func() { c = nil })
	c = newConn(s, nc)
	if c.heard, c.ended = heard, ended; !s.add(c) {
		return nil
	}
	return c
}

// open counts the connections. The caller holds the mutex.
func (s *Server) open() int { return len(s.conns) + len(s.parking.conns) }

func (s *Server) setClock() {
	now := time.Now()
	s.now.Store(now.Unix())
	date := "Date: " + now.UTC().Format(http.TimeFormat) + "\r\n"
	s.date.Store(&date)
}

// inspect applies the time limits and detects clients that are gone. It runs every tick as long as
// there are connections.
func (s *Server) inspect() {
	s.setClock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open() == 0 {
		s.timer = nil
		return
	}
	for c := range s.conns {
		s.check(c)
	}
	s.resumeExpired()
	s.free()
	s.timer.Reset(tick)
}

// check inspects a connection, and closes it if that fails.
func (s *Server) check(c *conn) {
	defer goroutine.Recover("inspect a connection", func() { _ = c.Conn.Close() })
	c.inspect()
}

// Shutdown closes the listeners and the idle connections, and waits until the requests in progress are
// answered. If ctx ends first, it closes the connections and returns the context's error. Connections
// that handlers have taken over are not affected.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.draining.Store(true)
	s.last.Store(true)
	for l := range s.listeners {
		_ = l.Close()
	}
	s.resumeAll() // each ends, because the server drains
	drained := make(chan struct{})
	if len(s.conns) == 0 {
		close(drained)
	} else {
		s.drained = drained
	}
	for c := range s.conns {
		c.interruptIdle()
	}
	s.mu.Unlock()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.ctx.Load().cancel(context.Canceled)
		_ = c.Conn.Close()
	}
	return ctx.Err()
}

// Drain lets each connection end with its next response, which has "Connection: close". It
// closes no connection: one that waits for a request may still send it. Call Shutdown
// to close those, and Serve's listener to accept no others.
func (s *Server) Drain() { s.last.Store(true) }

func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Load() {
		return false
	}
	if s.MaxConns > 0 && s.open() >= s.MaxConns {
		s.refused.Add(1)
		return false
	}
	if s.conns == nil {
		s.conns = map[*conn]struct{}{}
	}
	if s.timer == nil {
		s.setClock()
		s.timer = goroutine.After(tick, "inspect connections", s.inspect)
	}
	c.opened = s.now.Load()
	c.reading.Store(mark(phaseNew, c.opened))
	s.conns[c] = struct{}{}
	return true
}
