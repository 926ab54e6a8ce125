package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fairlead/internal/lock"
)

// UnopenedError is the error of a Proxy that opens sockets while its caller does other things: the state needs
// sockets that are not open yet, and nothing has changed. The same call succeeds, or returns the reason why they
// cannot be opened, when Done is closed.
type UnopenedError struct{ Done <-chan struct{} }

// Error implements error.
func (*UnopenedError) Error() string {
	return "the proxy has not opened the host ports yet: repeat the request"
}

// openLimit is how long Wait waits for the proxy.
const openLimit = 10 * time.Second

// Wait waits until the proxy has answered. Returns an error if it does not within ten seconds, or if ctx ends.
func (u *UnopenedError) Wait(ctx context.Context) error {
	lock.Outside("the proxy")
	select {
	case <-u.Done:
		return nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("open host ports: %w", ErrSilentProxy)
		}
		return fmt.Errorf("open host ports: %w", ctx.Err())
	case <-time.After(openLimit):
		return fmt.Errorf("open host ports: %w", ErrSilentProxy)
	}
}

// ErrSilentProxy is the error of requests for ports of a proxy that does not answer.
var ErrSilentProxy = errors.New("the proxy does not answer: end its process, which `pgrep -f fairlead-proxy` finds")
