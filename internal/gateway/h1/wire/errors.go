package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

// StatusClientClosedRequest is the status that logs show for a request that the client abandoned.
// It is nginx's and Traefik's; no client receives it.
const StatusClientClosedRequest = 499

// ErrBusy is returned if all connections that the pool may have are in use.
var ErrBusy = errors.New("all connections to the server are in use")

// ErrClosed interrupts connecting to a server that is used no more.
var ErrClosed = errors.New("the server was removed and does not accept the connection")

// ErrStale is the error of an idle connection that the server has closed, or on which it has sent bytes
// without a request.
var ErrStale = errors.New("the idle connection cannot be used again")

// ErrHeaderTimeout interrupts a request whose response did not begin in time.
var ErrHeaderTimeout = fmt.Errorf("no response head in time: %w", os.ErrDeadlineExceeded)

// ErrEarly interrupts the body of a request whose response is complete. Pool.Forward returns it if the
// server has changed the protocol before it had the whole request.
var ErrEarly = errors.New("the server answered before it had the whole request")

// ErrFault ends a request whose body could not be sent because of a mistake in the gateway.
var ErrFault = errors.New("a mistake in the gateway has ended the request")

// Error is the error of Pool.Forward.
type Error struct {
	// Op is what failed, for example "read response".
	Op  string
	Err error
	// Sent: the server may have received a part of the request. A request that was not sent can be
	// repeated, whatever its method.
	Sent bool
	// BodyRead: a part of the request's body was read and cannot be read again.
	BodyRead bool
	// Started: the client has received the head of the response. The caller must end the response
	// with panic(http.ErrAbortHandler), so that the client sees that it is truncated.
	Started bool
	// Client: the client caused the failure, or can cause it at will: it closed its connection, sent a
	// Malformed body, or sent a body so slowly that the server changed the protocol before its end.
	Client bool
}

// Error implements error.
func (e *Error) Error() string { return e.Op + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Status is the status for the client and for logs: 504 for timeouts, 499 if the client is gone, the
// 4xx status of a malformed or oversized body, 503 for ErrBusy, else 502, also for ErrEarly.
func (e *Error) Status() int {
	var large *http.MaxBytesError
	switch {
	case errors.Is(e.Err, context.Canceled):
		return StatusClientClosedRequest
	case errors.As(e.Err, &large):
		return http.StatusRequestEntityTooLarge
	case errors.Is(e.Err, ErrEarly):
		return http.StatusBadGateway
	case e.Client && IsTimeout(e.Err):
		return http.StatusRequestTimeout
	case e.Client && errors.Is(e.Err, errMalformed):
		return http.StatusBadRequest
	case e.Client:
		return StatusClientClosedRequest
	case IsTimeout(e.Err):
		return http.StatusGatewayTimeout
	case errors.Is(e.Err, ErrBusy):
		return http.StatusServiceUnavailable
	}
	return http.StatusBadGateway
}

// Repeatable returns true if a retry of the request is safe: it was not sent, or its method is
// idempotent, and neither its body nor the response has begun.
func (e *Error) Repeatable(method string) bool {
	return !e.Started && !e.BodyRead && !e.Client && (!e.Sent || Idempotent(method))
}

// IsTimeout reports whether the error is that of a deadline.
func IsTimeout(err error) bool {
	var t net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &t) && t.Timeout()
}

// Idempotent returns true for the idempotent methods of RFC 9110 9.2.2.
func Idempotent(method string) bool {
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE":
		return true
	}
	return false
}

// Unexpected turns the end of a connection within a message into an error.
func Unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
