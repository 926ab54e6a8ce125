package health

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"regexp"
	"time"

	"fairlead/internal/model"
)

// tcpCheck passes if a connection is established and, if configured, the TLS
// handshake succeeds and the answer matches.
type tcpCheck struct {
	send   []byte
	expect *regexp.Regexp
	tls    *secure
}

var tcpType = Type{Name: model.CheckTCP, Settings: []string{"tls", "send", "expect"}, overlaps: always, checker: newTCP}

func newTCP(c model.Check, m Means) (Checker, error) {
	t := tcpCheck{send: []byte(c.Send)}
	var err error
	if c.Expect != "" {
		t.expect, err = regexp.Compile(c.Expect)
	}
	if c.TLS {
		t.tls = newSecure(c, m)
	}
	return t, err
}

// Check implements Checker.
func (t tcpCheck) Check(ctx context.Context, at Target) Result {
	if at.Dial == nil && t.tls == nil && len(t.send) == 0 && t.expect == nil {
		if err := probe(ctx, at.Real); err != nil {
			return broken(ctx, "connect", err)
		}
		return passed("connected")
	}
	raw, err := open(ctx, at, "tcp")
	if err != nil {
		return broken(ctx, "connect", err)
	}
	defer raw.Close()
	conn := net.Conn(raw)
	if t.tls != nil {
		if conn, err = t.tls.client(ctx, raw); err != nil {
			return broken(ctx, "TLS", err)
		}
	}
	if len(t.send) > 0 {
		if _, err := conn.Write(t.send); err != nil {
			return broken(ctx, "send", err)
		}
	}
	if t.expect == nil {
		return passed("connected")
	}
	return t.read(ctx, conn)
}

// read reads until the answer matches. It tries the expression on the whole answer
// after it has grown by a quarter, or after a pause, so that a server that answers
// byte by byte does not cause one try for each byte.
func (t tcpCheck) read(ctx context.Context, conn net.Conn) Result {
	const pause = 50 * time.Millisecond
	answer, tried := make([]byte, 0, 512), 0
	for {
		while := time.Hour
		if tried != len(answer) {
			while = pause
		}
		_ = conn.SetReadDeadline(soon(ctx, while)) // without deadlines it ends with ctx
		n, err := conn.Read(answer[len(answer):cap(answer)])
		answer = answer[:len(answer)+n]
		paused := errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil
		last := len(answer) >= answerLimit || err != nil && !paused
		if len(answer) > tried && (last || paused || len(answer)*4 >= tried*5) {
			if t.expect.Match(answer) {
				return passed("the answer matches")
			}
			tried = len(answer)
		}
		if last {
			return t.mismatch(ctx, answer, err)
		}
		if len(answer) == cap(answer) {
			answer = append(make([]byte, 0, min(answerLimit, 4*cap(answer))), answer...)
		}
	}
}

func (t tcpCheck) mismatch(ctx context.Context, answer []byte, err error) Result {
	switch {
	case len(answer) == 0 && errors.Is(err, io.EOF):
		return failed("the server closed the connection without an answer").as(Closed)
	case len(answer) == 0:
		return broken(ctx, "read", err)
	}
	return failed("the answer does not match: %s", quoted(answer))
}

// soon returns the earlier of the time after while and ctx's deadline.
func soon(ctx context.Context, while time.Duration) time.Time {
	at := time.Now().Add(while)
	if until, ok := ctx.Deadline(); ok && until.Before(at) {
		return until
	}
	return at
}
