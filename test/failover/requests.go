// Package failover sends requests to nginx behind a complete daemon, at a fixed rate over a wire,
// while real servers fail, come back and are drained. The laboratory measures how fast failures are
// noticed (suite balancer).
package failover

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/lab/failover"
)

// AskRole is the role of the client process; AskMain is its main function.
const AskRole = "failover-ask"

// Question defines the target and the rate of requests. Requests are sent at scheduled times, each
// on a new connection, so that unanswered requests do not delay the others.
type Question struct {
	// Target is ADDRESS:PORT of an HTTP server.
	Target string
	// Rate is in requests per second.
	Rate int
	// Timeout is how long a request may take.
	Timeout time.Duration
}

// AskMain reads the question from standard input and sends requests until it reads child.Over. It then
// writes all requests, sorted by start, and waits for the end of its input, so that the reader gets
// all of them before the process exits.
func AskMain() int {
	err := child.Work(os.Stdin, os.Stdout, func(q Question) (func(<-chan struct{}) []failover.Request, error) {
		return func(over <-chan struct{}) []failover.Request {
			return failover.AskAll(q.Rate, over, func() (string, error) { return Get(q) })
		}, nil
	})
	_, _ = io.Copy(io.Discard, os.Stdin)
	return child.ExitCode(AskRole, err)
}

// Get sends one request for / and returns the body.
func Get(q Question) (string, error) {
	conn, err := net.DialTimeout("tcp", q.Target, q.Timeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(q.Timeout)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: failover\r\nConnection: close\r\n\r\n"); err != nil {
		return "", err
	}
	whole, err := io.ReadAll(bufio.NewReader(conn))
	if err != nil {
		return "", err
	}
	head, body, _ := strings.Cut(string(whole), "\r\n\r\n")
	if !strings.HasPrefix(head, "HTTP/1.1 200 ") || body == "" {
		return "", fmt.Errorf("the answer is %.60q", whole)
	}
	return strings.TrimSpace(body), nil
}
