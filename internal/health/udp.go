package health

import (
	"context"
	"errors"
	"os"
	"regexp"
	"time"

	"fairlead/internal/model"
)

// udpCheck sends a datagram. It passes if an answer matches. Without an expected
// answer, it fails only if an ICMP message reports that the port is closed.
type udpCheck struct {
	send   []byte
	expect *regexp.Regexp
}

// udpType's checks without an expected answer take long even when they pass, because
// they wait for an ICMP message about a closed port.
var udpType = Type{Name: model.CheckUDP, Settings: []string{"send", "expect"},
	overlaps: func(c model.Check) bool { return c.Expect != "" }, checker: newUDP}

func newUDP(c model.Check, _ Means) (Checker, error) {
	u := udpCheck{send: []byte(c.Send)}
	var err error
	if c.Expect != "" {
		u.expect, err = regexp.Compile(c.Expect)
	}
	return u, err
}

// closedWithin is how long a host may take to report that a port is closed. Hosts
// limit the rate of these ICMP messages (icmp_ratelimit), and firewalls may drop
// them: if a server can answer, expect an answer.
const closedWithin = 250 * time.Millisecond

// mostDatagrams limits the datagrams that are read before an answer: late answers
// to other clients that used the same port before.
const mostDatagrams = 100

// Check implements Checker.
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
			return passed("the answer matches")
		case err == nil: // perhaps a late answer to another client
		case u.expect == nil && (errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil):
			return passed("no ICMP message reports the port as closed")
		default:
			return unanswered(ctx, others, err)
		}
	}
	return failed("%d datagrams came, and none matches", mostDatagrams)
}

// unanswered returns the result if reading ends after so many datagrams that are
// not an answer: a server that sends some is not silent.
func unanswered(ctx context.Context, others int, err error) Result {
	r := broken(ctx, "read", err)
	if others == 0 || r.Failure != Timeout {
		return r
	}
	if others == 1 {
		return failed("a datagram came that does not answer the request")
	}
	return failed("%d datagrams came, and none answers the request", others)
}
