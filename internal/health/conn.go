package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// answerLimit limits how much of an answer is examined, in bytes. readLimit limits
// how much is read from a connection in total.
const (
	answerLimit = 64 << 10
	readLimit   = 1 << 20
)

var errTooMuch = errors.New("the answer has no end")

// open connects to the target. The connection is closed at the latest when ctx
// ends.
func open(ctx context.Context, at Target, network string) (*bounded, error) {
	var conn net.Conn
	var err error
	switch {
	case at.Dial != nil:
		conn, err = at.Dial(ctx, network, at.Real.String())
	case network == "tcp":
		conn, err = connect(ctx, at.Real)
	default:
		conn, err = (&net.Dialer{}).DialContext(ctx, network, at.Real.String())
	}
	if err != nil {
		return nil, err
	}
	b := &bounded{Conn: conn, left: readLimit}
	until, ends := ctx.Deadline()
	itself := ends && conn.SetDeadline(until) == nil
	b.stop = context.AfterFunc(ctx, func() {
		if !itself || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			_ = conn.Close() // its Read and Write return
		}
	})
	return b, nil
}

// bounded is a connection from which at most readLimit bytes are read, and which
// ends with a reset.
type bounded struct {
	net.Conn
	left int
	stop func() bool
}

// Read implements io.Reader, within the limit.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooMuch
	}
	p = p[:min(len(p), b.left)]
	n, err := b.Conn.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// The error of a file is not a net.Error: after that, crypto/tls would never read again.
		n, err = b.readArrived(p, os.ErrDeadlineExceeded)
	}
	b.left -= n
	return n, err
}

// readArrived reads data that arrived before the deadline: it is not the server's
// fault if this process had no CPU time to read it. If there is none, it returns
// the error timedOut.
func (b *bounded) readArrived(p []byte, timedOut error) (int, error) {
	conn, ok := b.Conn.(syscall.Conn)
	if !ok || len(p) == 0 {
		return 0, timedOut
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, timedOut
	}
	n := 0
	if gone := raw.Control(func(fd uintptr) { n, err = unix.Read(int(fd), p) }); gone != nil {
		return 0, timedOut
	}
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return 0, timedOut
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0 && !b.datagrams():
		return 0, io.EOF
	}
	return n, nil
}

// datagrams reports whether an empty read is a message, and not the end.
func (b *bounded) datagrams() bool {
	_, ok := b.Conn.(net.PacketConn)
	return ok
}

// Close ends the connection with a reset, so that no side waits for late packets.
func (b *bounded) Close() error {
	b.stop()
	if tcp, ok := b.Conn.(interface{ SetLinger(int) error }); ok {
		_ = tcp.SetLinger(0) // it is closed in any case
	}
	return b.Conn.Close()
}

// broken returns the result of a check that failed with an error at a step, e.g.
// "connect".
func broken(ctx context.Context, doing string, err error) Result {
	if isLocal(err) {
		r := failed("this host cannot check: %s: %v", doing, err)
		r.Void = true
		return r
	}
	return failed("%s: %s", doing, reason(ctx, err)).as(kindOf(ctx, doing, err))
}

// isLocal reports whether the error means that this host lacks a resource, so that
// it says nothing about the server.
func isLocal(err error) bool {
	for _, lack := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS,
		syscall.EADDRNOTAVAIL, syscall.EAGAIN} {
		if errors.Is(err, lack) {
			return true
		}
	}
	return false
}

// Unanswered is a timeout of a DialFunc whose message says what was not answered.
type Unanswered struct{ Err error }

// Error implements error.
func (u Unanswered) Error() string { return u.Err.Error() }

// Unwrap returns the error.
func (u Unanswered) Unwrap() error { return u.Err }

// reason returns in a few words what an error of a connection means.
func reason(ctx context.Context, err error) string {
	var number syscall.Errno
	var silent Unanswered
	switch {
	case errors.As(err, &silent):
		return silent.Error()
	case ctx.Err() != nil, errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.As(err, &number):
		return number.Error()
	}
	return err.Error()
}

// detailLimit is the longest detail, in characters.
const detailLimit = 120

// oneLine makes untrusted text safe to show: printable, one line, short.
func oneLine(text string) string {
	cut := len(text) > 4*detailLimit
	if cut {
		text = text[:4*detailLimit]
	}
	clean := strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, text)), " ")
	if utf8.RuneCountInString(clean) > detailLimit {
		clean, cut = string([]rune(clean)[:detailLimit]), true
	}
	if cut {
		clean += "…"
	}
	return clean
}

// quoted returns the quoted beginning of an answer.
func quoted(answer []byte) string {
	return fmt.Sprintf("%q", answer[:min(len(answer), 40)])
}
