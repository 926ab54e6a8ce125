package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/gateway/healthcheck"
	"fairlead/internal/model/gateway"
)

// Check connects to servers in intervals, all of which are set. A server is up if it accepts the connection and, if
// Expect is not empty, sends that text in answer to Send.
type Check gateway.TCPHealthCheck

// Start begins to check the servers, each on its own and at once. It calls changed when a
// server goes up or down. The function that it returns ends the checks; servers keep their
// last condition.
func (c Check) Start(servers []*Server, t *Transport, changed func(s *Server, down bool, why string)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running goroutine.Group
	for _, s := range servers {
		running.Go("check a server", func() {
			healthcheck.Repeat(ctx, &s.down, c.Interval, c.UnhealthyInterval, func() error { return c.ask(ctx, s, t) },
				func(down bool, why string) { changed(s, down, why) })
		})
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// ask returns why the server is down, nil if it is up.
func (c Check) ask(ctx context.Context, s *Server, t *Transport) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	at := &Server{Address: s.Address, TLS: s.TLS}
	if c.Port != 0 {
		host, _, _ := net.SplitHostPort(s.Address) // ParseServer has checked it
		at.Address = net.JoinHostPort(host, strconv.Itoa(c.Port))
	}
	conn, err := at.dial(ctx, t, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := goroutine.OnDone(ctx, "end a check", func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := io.WriteString(conn, c.Send); err != nil {
		return err
	}
	got := make([]byte, len(c.Expect))
	n, err := io.ReadFull(conn, got)
	switch {
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF):
		return fmt.Errorf("wait for %q: %w", c.Expect, err)
	case string(got[:n]) != c.Expect:
		return fmt.Errorf("the server sent %q, want %q", got[:n], c.Expect)
	}
	return nil
}
