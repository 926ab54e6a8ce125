package forward

import (
	"bytes"
	"io"
	"net/http"

	"fairlead/internal/gateway/h1/wire"
)

// Forward sends the request to the server, with the host as its Host header (if empty, r.Host), and
// copies the response to w. It sends r.Header as it is, without the fields that concern one connection
// (RFC 9110 7.6.1) and without those that Connection names. Fields of the response are added to
// w.Header(). What is readable of the response is passed on before Forward waits for more.
//
// A request on a reused connection that turns out to be closed is sent once more on a new connection,
// if the server has received nothing of it, or if its method is idempotent and its body is short.
//
// Any error is an *Error. If its field Started is set, the caller must end the response with
// panic(http.ErrAbortHandler); otherwise w has received nothing.
func (p *Pool) Forward(w http.ResponseWriter, r *http.Request, host string) error {
	x := exchanges.Get().(*exchange)
	x.pool, x.w, x.r, x.host = p, w, r, host
	x.flusher, _ = w.(http.Flusher)
	err := x.run()
	x.restoreBody(err)
	x.clear()
	return err
}

// restoreBody makes a short body readable again after a failure that is not the client's, so that the
// caller can send the request to another server.
func (x *exchange) restoreBody(err error) {
	if e, ok := err.(*wire.Error); ok && e.BodyRead && !e.Client && x.mode == bodyInline {
		x.r.Body = io.NopCloser(bytes.NewReader(bytes.Clone(x.body)))
		e.BodyRead = false
	}
}

func (x *exchange) run() error {
	x.upgrade = upgradeOf(x.r.Header)
	if err := x.chooseMode(); err != nil {
		return err
	}
	if err := x.appendRequest(); err != nil {
		return &wire.Error{Op: "write request", Err: err, BodyRead: x.mode == bodyInline, Client: true}
	}
	if x.mode == bodyInline {
		x.out = append(x.out, x.body...)
	}
	ctx := x.r.Context()
	for replay := false; ; {
		u, err := x.pool.get(ctx, replay)
		if err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return &wire.Error{Op: "connect", Err: err, BodyRead: x.mode == bodyInline}
		}
		x.u = u
		reused := u.reused // another request may have the connection after this one
		failed := x.once()
		if failed != nil && failed.Err == wire.ErrStale {
			x.pool.counts.stale.Add(1)
			continue
		}
		if reused {
			x.pool.counts.reused.Add(1)
		}
		if failed == nil {
			return nil
		}
		if !x.replayable(failed) || replay || !reused {
			return failed
		}
		x.pool.counts.replayed.Add(1)
		replay = true
	}
}

// replayable returns true if the request can be sent again after this error (RFC 9112 9.3.1).
func (x *exchange) replayable(e *wire.Error) bool {
	switch {
	case x.answered || e.Started || e.Client || x.r.Context().Err() != nil || wire.IsTimeout(e.Err):
		return false
	case x.mode == bodyStream:
		return x.sender == nil
	}
	return !e.Sent || wire.Idempotent(x.r.Method)
}

// once sends the request on x.u and copies the response. If the writer panics, the connection is closed.
func (x *exchange) once() (failed *wire.Error) {
	u := x.u
	returned := false
	defer func() {
		if !returned {
			x.settle(&wire.Error{Err: http.ErrAbortHandler})
		}
	}()
	u.begin(x.r.Context())
	failed = x.send()
	if failed == nil {
		failed = x.receive()
	}
	returned = true
	x.settle(failed)
	return failed
}

// receive reads the response and copies it.
func (x *exchange) receive() *wire.Error {
	for interim := 0; ; {
		h, err := x.readHead()
		if h.status < 200 {
			interim += h.size
		}
		if err == nil && interim > maxInterim {
			err = wire.Malformed("interim responses of more than %d bytes", maxInterim)
		}
		if err != nil {
			return &wire.Error{Op: "read response", Err: err, Sent: true, Started: x.started}
		}
		switch {
		case h.status == http.StatusSwitchingProtocols:
			return x.switchProtocols(h)
		case h.status < 200:
			x.interim(h)
		default:
			x.u.arrived()
			return x.copyResponse(h)
		}
	}
}

// settle ends the sender, completes the error, and keeps or closes the connection.
func (x *exchange) settle(failed *wire.Error) {
	u := x.u
	complete := failed == nil
	if complete {
		x.pool.counts.requests.Add(1)
	} else {
		failed.Err = u.reason(failed.Err)
		failed.BodyRead = failed.BodyRead || x.mode == bodyInline || x.sender != nil
		failed.Sent = failed.Sent && !x.unread(failed.Err)
	}
	if s := x.sender; s != nil {
		complete = s.finish(x, failed != nil) && complete
		if failed != nil && s.readErr != nil && failed.Err == s.readErr {
			failed.Op, failed.Client = "read request body", true
		}
	}
	reusable := u.end() && complete && !u.closing && u.Buffered() == 0
	switch {
	case u.taken:
	case reusable:
		x.pool.put(u)
	default:
		x.pool.drop(u)
	}
}

// send writes the request, or starts to. It waits for the response only if the request is complete.
func (x *exchange) send() *wire.Error {
	if x.mode == bodyStream {
		if x.u.isStale() {
			return &wire.Error{Op: "write request", Err: wire.ErrStale}
		}
		return x.startSender()
	}
	n, writeErr, readErr := x.u.request(x.out)
	x.answered = x.u.Buffered() > 0
	switch {
	case writeErr != nil:
		return &wire.Error{Op: "write request", Err: writeErr, Sent: n > 0}
	case readErr != nil:
		return &wire.Error{Op: "read response", Err: wire.Unexpected(readErr), Sent: true}
	}
	return nil
}
