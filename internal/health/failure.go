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

// Failure is of what kind the failure of a check was. There are few, so that
// each can be counted of each server.
type Failure string

// The failures.
const (
	// Refused is a connection that the server's host has refused.
	Refused Failure = "refused"
	// Timeout is no answer in time, or none that was complete.
	Timeout Failure = "timeout"
	// Unreachable is a server to which no way leads.
	Unreachable Failure = "unreachable"
	// Closed is a connection that was ended before the answer was.
	Closed Failure = "closed"
	// Insecure is TLS that fails, or a certificate that is not right.
	Insecure Failure = "tls"
	// WrongAnswer is an answer that is not as it should be.
	WrongAnswer Failure = "answer"
	// CommandFailed is a command that does not exit with 0.
	CommandFailed Failure = "command"
	// Unhealthy is a container of which its engine says so.
	Unhealthy Failure = "unhealthy"
)

// as returns the result with another kind of failure.
func (r Result) as(f Failure) Result {
	r.Failure = f
	return r
}

// kindOf returns of what kind a failure is that an error made of what was done.
func kindOf(ctx context.Context, doing string, err error) Failure {
	var silent Unanswered
	switch {
	case errors.As(err, &silent), ctx.Err() != nil, errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return Timeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTDOWN):
		return Unreachable
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Closed
	case doing == "TLS":
		return Insecure
	}
	return WrongAnswer
}

// Counts count the checks of one real server since it is one.
type Counts struct {
	Passed uint64 `json:"passed"`
	// Void are those that this host could not make.
	Void uint64 `json:"void"`
	// Failed are by their kind; those that have not happened are left out.
	Failed map[Failure]uint64 `json:"failed,omitempty"`
	// Ejected is how often clients' failures took the server out.
	Ejected uint64 `json:"ejected"`
	// Busy is how long all checks together took, and Last the last of them, which
	// has passed or not.
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

// CountsOf returns what is counted of a service's real servers, by where they
// are.
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
