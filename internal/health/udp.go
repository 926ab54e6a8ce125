package health

import (
	"context"
	"errors"
	"os"
	"regexp"
	"time"

	"fairlead/internal/model"
)

// udpCheck sends a datagram. It passes where an answer fits; where none is
// expected, it fails only if the port is told to be closed.
type udpCheck struct {
	send   []byte
	expect *regexp.Regexp
}

func newUDP(c model.Check) (Checker, error) {
	u := udpCheck{send: []byte(c.Send)}
	var err error
	if c.Expect != "" {
		u.expect, err = regexp.Compile(c.Expect)
	}
	return u, err
}

// closedWithin is how long a host may take to tell that a port is closed. Hosts
// tell it only so often (icmp_ratelimit), and firewalls not at all: a server
// that can answer is better asked for an answer.
const closedWithin = 250 * time.Millisecond

// mostDatagrams bounds what is read before an answer: late ones to others'
// questions, of a port that was theirs before.
const mostDatagrams = 100

// Check is Checker's.
func (u udpCheck) Check(ctx context.Context, at Target) Result {
	conn, err := open(ctx, at, "udp")
	if err != nil {
		return broken(ctx, "connect", err)
	}
	defer conn.Close()
	if _, err := conn.Write(u.send); err != nil {
		return broken(ctx, "send", err)
	}
	if u.expect == nil {
		_ = conn.SetReadDeadline(soon(ctx, closedWithin)) // without deadlines it ends with ctx
	}
	datagram := make([]byte, answerLimit)
	for others := range mostDatagrams {
		n, err := conn.Read(datagram)
		switch {
		case err == nil && u.expect == nil:
			return passed("it answers")
		case err == nil && u.expect.Match(datagram[:n]):
			return passed("the answer fits")
		case err == nil: // a late answer to somebody else's question, maybe
		case u.expect == nil && (errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil):
			return passed("the port is not told to be closed")
		default:
			return unanswered(ctx, others, err)
		}
	}
	return failed("%d datagrams came, and none fits", mostDatagrams)
}

// unanswered is the result where reading ends after so many datagrams that are no
// answer: a server that sends those is not silent.
func unanswered(ctx context.Context, others int, err error) Result {
	r := broken(ctx, "read", err)
	if others == 0 || r.Failure != Timeout {
		return r
	}
	if others == 1 {
		return failed("a datagram came that is no answer to the question")
	}
	return failed("%d datagrams came, and none is an answer to the question", others)
}
