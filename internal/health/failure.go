package health

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// Failure is the kind of a check's failure. There are few kinds, so that each can
// be counted for each server.
type Failure string

// The failures.
const (
	// Refused is a connection that the server's host refused.
	Refused Failure = "refused"
	// Timeout is no complete answer in time.
	Timeout Failure = "timeout"
	// Unreachable is a server without a route, or whose host is down.
	Unreachable Failure = "unreachable"
	// Closed is a connection that ended before the answer was complete.
	Closed Failure = "closed"
	// Insecure is a failed TLS handshake, or a certificate that is not accepted.
	Insecure Failure = "tls"
	// WrongAnswer is an answer that does not match.
	WrongAnswer Failure = "answer"
	// CommandFailed is a command that does not exit with 0.
	CommandFailed Failure = "command"
	// Unhealthy is a container that its engine does not report as healthy.
	Unhealthy Failure = "unhealthy"
)

// as returns the result with another kind of failure.
func (r Result) as(f Failure) Result {
	r.Failure = f
	return r
}

// kindOf returns the kind of failure for an error at a step.
func kindOf(ctx context.Context, doing string, err error) Failure {
	var silent Unanswered
	switch {
	case errors.As(err, &silent), ctx.Err() != nil, errors.Is(err, os.ErrDeadlineExceeded),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return Timeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTDOWN):
		return Unreachable
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF):
		return Closed
	case doing == "TLS":
		return Insecure
	}
	return WrongAnswer
}

// Counts count the checks of one real server since it was added.
type Counts struct {
	Passed uint64 `json:"passed"`
	// Void counts the checks that this host could not make.
	Void uint64 `json:"void"`
	// Failed counts failures by kind. Kinds with 0 are missing.
	Failed map[Failure]uint64 `json:"failed,omitempty"`
	// Ejected is how often clients' failures took the server down.
	Ejected uint64 `json:"ejected"`
	// Busy is how long all checks together took. Last is how long the last one took,
	// and OK is true if it passed.
	Busy time.Duration `json:"busy"`
	Last time.Duration `json:"last"`
	OK   bool          `json:"ok"`
}

// Made returns how many checks were made.
func (c Counts) Made() uint64 {
	n := c.Passed + c.Void
	for _, failed := range c.Failed {
		n += failed
	}
	return n
}

func (c *Counts) count(res Result) {
	c.Busy += res.Latency
	c.Last, c.OK = res.Latency, res.OK
	switch {
	case res.Void:
		c.Void++
	case res.OK:
		c.Passed++
	default:
		if c.Failed == nil {
			c.Failed = map[Failure]uint64{}
		}
		c.Failed[res.Failure]++
	}
}

// CountsOf returns the counts of a service's real servers, by address and port; nil
// if the service is unknown.
func (m *Monitor) CountsOf(service string) map[netip.AddrPort]Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.services[service]
	if of == nil {
		return nil
	}
	all := make(map[netip.AddrPort]Counts, len(of.servers))
	for at, s := range of.servers {
		c := s.counts
		c.Failed = maps.Clone(c.Failed)
		all[at] = c
	}
	return all
}
