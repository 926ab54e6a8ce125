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

// Target is what is checked.
type Target struct {
	// Service is the virtual service's name.
	Service string
	// Real is the real server's address and the port to check.
	Real netip.AddrPort
	// Dial opens connections to the server on the way that clients' packets
	// take; nil dials Real from this host, which is what the planes' packets do
	// that forward by NAT.
	Dial DialFunc
	// Endpoint is the attachment that the server is, if it is one of ours.
	Endpoint string
}

// Result is what a check has found.
type Result struct {
	OK bool
	// Void says that the check could not be made for a reason of this host's: it
	// counts neither way.
	Void bool
	// Failure is of what kind it is, where it is one.
	Failure Failure
	// Detail says in one short line what was found.
	Detail string
	// Latency is how long the check took.
	Latency time.Duration
	// Advice is what the server's agent says; its zero value says nothing.
	Advice Advice
}

// Checker checks one real server once. It returns when ctx ends at the latest.
type Checker interface {
	Check(ctx context.Context, at Target) Result
}

// Container says how a container engine finds the container of an endpoint. An
// error says that it could not be asked.
type Container func(ctx context.Context, endpoint string) (healthy bool, detail string, err error)

// Means is what checkers need that the model does not say.
type Means struct {
	// Container answers checks of type docker.
	Container Container
	// Roots sign the certificates of servers; nil is those that the host trusts.
	Roots *x509.CertPool
}

// New returns the checker of a service's check, and nil where nothing is to be
// checked. The check is valid.
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
	switch c.Type {
	case "", model.CheckNone:
		return nil, nil
	case model.CheckTCP:
		return newTCP(c, m)
	case model.CheckHTTP, model.CheckHTTPS:
		return newHTTP(c, m)
	case model.CheckGRPC:
		return newGRPC(c, m)
	case model.CheckDNS:
		return newDNS(c)
	case model.CheckUDP:
		return newUDP(c)
	case model.CheckExec:
		return execCheck{c.Command, newCheckGroup}, nil
	case model.CheckDocker:
		if m.Container == nil {
			return nil, fmt.Errorf("no container engine can be asked: use another check")
		}
		return dockerCheck{m.Container}, nil
	}
	return nil, fmt.Errorf("no such check: want tcp, http, https, grpc, dns, udp, exec, docker or none")
}

// failed returns the result of a check that the server has not passed, for a
// wrong answer unless somebody says otherwise.
func failed(format string, args ...any) Result {
	return Result{Failure: WrongAnswer, Detail: oneLine(fmt.Sprintf(format, args...))}
}

func passed(format string, args ...any) Result {
	return Result{OK: true, Detail: oneLine(fmt.Sprintf(format, args...))}
}
