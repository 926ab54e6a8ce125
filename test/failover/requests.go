// Package failover sends requests to nginx behind a complete daemon, at a fixed rate over a wire,
// while real servers fail, come back and are drained. The laboratory measures how fast failures are
// noticed (suite balancer).
package failover

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead/internal/lab/failover"
)

// AskRole is the role of the client process; AskMain is its main function.
const AskRole = "failover-ask"

// Over makes the client process stop: a JSON string on its standard input.
const Over = "\"over\"\n"

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

// AskMain reads the question from standard input and sends requests until it reads Over. It then
// writes all requests, sorted by start, and waits for the end of its input, so that the reader gets
// all of them before the process exits.
func AskMain() int {
	in := json.NewDecoder(os.Stdin)
	var q Question
	if err := in.Decode(&q); err != nil {
		fmt.Fprintln(os.Stderr, "read the question:", err)
		return 1
	}
	over := make(chan struct{})
	go func() {
		var end string
		_ = in.Decode(&end) // the end of the input ends the requests, too
		close(over)
	}()
	fmt.Println("ready")
	if err := json.NewEncoder(os.Stdout).Encode(askAll(q, over)); err != nil {
		return 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func askAll(q Question, over <-chan struct{}) []failover.Request {
	var mu sync.Mutex
	var done sync.WaitGroup
	var all []failover.Request
	gap := time.Second / time.Duration(q.Rate)
	for next := time.Now(); ; next = next.Add(gap) {
		select {
		case <-over:
			done.Wait()
			slices.SortFunc(all, func(a, b failover.Request) int { return int(a.Start - b.Start) })
			return all
		case <-time.After(time.Until(next)):
		}
		done.Go(func() {
			r := ask(q)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, r)
		})
	}
}

func ask(q Question) failover.Request {
	start := time.Now()
	by, err := Get(q)
	r := failover.Request{Start: start.UnixNano(), Took: time.Since(start).Nanoseconds(), By: by}
	if err != nil {
		r.By, r.Err = "", err.Error()
	}
	return r
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
