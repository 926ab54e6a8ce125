package h1

import (
	"errors"
	"net"
	"time"

	"fairlead/internal/gateway/goroutine"
)

// Accept accepts connections until the listener fails, and serves each on a goroutine of its own. It
// returns the listener's error.
func Accept(l net.Listener, serve func(net.Conn)) error {
	for delay := time.Duration(0); ; {
		c, err := l.Accept()
		var temporary interface{ Temporary() bool }
		switch {
		case err == nil:
			delay = 0
			goroutine.Go("serve a connection", func() { serve(c) })
		case errors.As(err, &temporary) && temporary.Temporary():
			// Too many open files: wait until some are closed.
			delay = min(max(2*delay, 5*time.Millisecond), time.Second)
			time.Sleep(delay)
		default:
			return err
		}
	}
}
