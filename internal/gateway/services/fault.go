package services

import (
	"context"
	"errors"
	"net"
	"net/http"

	"fairlead/internal/gateway/h1/wire"
	"fairlead/internal/gateway/middleware/outcome"
	"fairlead/internal/gateway/transport"
)

// faultOf returns who caused that a request could not be forwarded. It is the only place that decides:
// conditions of servers, circuit breakers, retries and statuses depend on it.
func faultOf(r *http.Request, err error) outcome.Fault {
	var e *wire.Error
	switch {
	case err == nil:
		return outcome.NoFault
	case errors.Is(r.Context().Err(), context.Canceled), errors.Is(err, context.Canceled):
		return outcome.ClientFault
	case errors.Is(err, wire.ErrBusy):
		return outcome.GatewayFault
	case errors.As(err, &e) && e.Client:
		return outcome.ClientFault
	}
	return outcome.ServerFault
}

// statusOf returns the status for a request that could not be forwarded. That of a client's fault is
// never 5xx.
func statusOf(r *http.Request, err error) int {
	e := transport.AsError(err)
	if !e.Client && errors.Is(r.Context().Err(), context.Canceled) {
		return wire.StatusClientClosedRequest
	}
	return e.Status()
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}
