package load

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Side is the end of the path that reports something.
type Side string

// The sides.
const (
	ClientSide Side = "client"
	ServerSide Side = "server"
)

// The errors that callers may distinguish with errors.Is.
var (
	// ErrRefused means that no socket listens at the target.
	ErrRefused = errors.New("connection refused")
	// ErrNoAnswer means that the target did not answer within 2 s.
	ErrNoAnswer = errors.New("no answer")
	// ErrClosed means that the target, or a proxy before it, closed the stream.
	ErrClosed = errors.New("closed by the peer")
)

// Error is a failure that one side of the path reported.
type Error struct {
	Side Side
	// Kind is the text of one of the Err… variables above, or empty.
	Kind string
	Text string
}

func (e *Error) Error() string { return fmt.Sprintf("load %s: %s", e.Side, e.Text) }

// Is makes errors.Is recognize the kind across the process boundary.
func (e *Error) Is(target error) bool { return e.Kind != "" && target.Error() == e.Kind }

// newError converts err for the message to the parent.
func newError(side Side, err error) *Error {
	return &Error{Side: side, Kind: kindOf(err), Text: err.Error()}
}

// kindOf returns the text of the Err… variable that the error is, or "".
func kindOf(err error) string {
	for _, kind := range []error{ErrRefused, ErrNoAnswer, ErrClosed} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	return ""
}

// patience is how long a peer may be silent when it must answer.
const patience = 2 * time.Second

// tick is the interval at which a blocked receiver checks whether the run is over.
const tick = 100 * time.Millisecond

// silent is the error for a peer that did not answer.
func silent(peer netip.AddrPort) error {
	return fmt.Errorf("%w from %s within %s", ErrNoAnswer, peer, patience)
}

// failed returns the error of an operation with a peer.
func failed(verb string, peer netip.AddrPort, err error) error {
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%s %s: %w", verb, peer, ErrRefused)
	case errors.Is(err, unix.EINPROGRESS), errors.Is(err, unix.ETIMEDOUT), errors.Is(err, unix.EAGAIN):
		return silent(peer)
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return fmt.Errorf("%s %s: %w", verb, peer, ErrClosed)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("%s %s: no source port or address left: %w", verb, peer, err)
	}
	return fmt.Errorf("%s %s: %w", verb, peer, err)
}

// closed is the error of a stream that ended although its peer had to send data.
func closed(peer netip.AddrPort) error { return fmt.Errorf("receive from %s: %w", peer, ErrClosed) }
