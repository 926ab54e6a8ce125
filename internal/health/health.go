package health

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"time"

	"fairlead/internal/model"
)

// DialFunc opens a connection, as net.Dialer's DialContext does. The network is
// tcp or udp.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Target is a real server to check.
type Target struct {
	// Service is the virtual service's name.
	Service string
	// Real is the real server's address and the port to check.
	Real netip.AddrPort
	// Dial opens connections to the server on the path of clients' packets. If nil,
	// the check dials Real from this host, as data planes do that forward by NAT.
	Dial DialFunc
	// Endpoint is the attachment that the server is, if it is one of Fairlead's.
	Endpoint string
}

// Result is the result of a check.
type Result struct {
	OK bool
	// Void is true if this host could not make the check. The result is then
	// discarded.
	Void bool
	// Failure is the kind of failure; empty if the check passed.
	Failure Failure
	// Detail is one short line about the result.
	Detail string
	// Latency is how long the check took.
	Latency time.Duration
	// Advice is the answer of the server's agent; zero if there is none.
	Advice Advice
}

// Checker checks one real server once. Check returns at the latest when ctx ends.
type Checker interface {
	Check(ctx context.Context, at Target) Result
}

// Container returns the health of an endpoint's container, from its engine. An
// error means that the engine could not be asked.
type Container func(ctx context.Context, endpoint string) (healthy bool, detail string, err error)

// Means is what checkers need besides the model.
type Means struct {
	// Container answers checks of type docker.
	Container Container
	// Roots are the certificate authorities that servers' certificates are verified
	// with. If nil, those that the host trusts are used.
	Roots *x509.CertPool
}

// New returns the checker for a service's check, or nil if the type is none. The
// check must be valid.
func New(c model.Check, m Means) (Checker, error) {
	one, err := byType(c, m)
	if err != nil {
		return nil, fmt.Errorf("check %s: %w", c.Type, err)
	}
	if c.Agent != 0 {
		return withAgent{one, c.Agent}, nil
	}
	return one, nil
}

func byType(c model.Check, m Means) (Checker, error) {
	if !c.Checks() {
		return nil, nil
	}
	t, known := typeOf(c.Type)
	if !known {
		return nil, fmt.Errorf("unknown type: want %s", model.OneOf(model.CheckTypes()))
	}
	return t.checker(c, m)
}

// failed returns the result of a failed check. The kind of failure is
// WrongAnswer; as changes it.
func failed(format string, args ...any) Result {
	return Result{Failure: WrongAnswer, Detail: oneLine(fmt.Sprintf(format, args...))}
}

func passed(format string, args ...any) Result {
	return Result{OK: true, Detail: oneLine(fmt.Sprintf(format, args...))}
}
