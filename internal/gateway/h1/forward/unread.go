package forward

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	"fairlead/internal/gateway/h1/wire"
)

const (
	// oneRead is the length of a request that servers commonly read at once, in bytes: the smallest
	// read buffer of the common ones (Go's net/http: 4,096; Apache: 8,000; Node.js: 65,536).
	oneRead = 4096
	// endedTimeout limits the attempt to connect to a server that has reset a connection. The kernel
	// needs three seconds to find that a host is gone.
	endedTimeout = 4 * time.Second
)

// unread returns true if the server cannot have begun to work on the request, although the kernel has
// accepted it. A server that ends closes the connections that wait for a request, so requests cross the
// end of their connection in each rolling update. There are two proofs:
//
//   - The FIN of a connection that waited acknowledges nothing of the request.
//   - A server that accepts no connection any more has reset this one. A kernel that closes a connection
//     sends a reset instead of a FIN if the application has not read everything (RFC 1122 4.2.2.13),
//     also if the application has not accepted the connection. A short request is read whole or not
//     at all. The reset of a server that still accepts connections proves nothing, because the
//     application may have chosen it.
func (x *exchange) unread(err error) bool {
	switch {
	case x.u.tcp == nil || x.mode == bodyStream || x.answered:
		return false
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return x.u.reused && wire.Unacknowledged(x.u.probe) >= len(x.out)
	}
	return errors.Is(err, syscall.ECONNRESET) && len(x.out) <= oneRead && x.ended()
}

// ended returns true if the server refuses a connection, or its host is gone.
func (x *exchange) ended() bool {
	ctx, cancel := context.WithTimeout(x.r.Context(), endedTimeout)
	defer cancel()
	c, err := x.pool.Dial(ctx)
	if err == nil {
		_ = c.Close() // nothing was sent
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) ||
		errors.Is(err, syscall.ENETUNREACH)
}
