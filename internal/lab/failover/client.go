package failover

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/lab/result"
)

// Rate is how many requests a client sends per second.
const Rate = 1000

// AnswerTimeout is how long a client waits for an answer; a request that takes
// longer has failed. An unanswered SYN is sent again once within that time, after
// one second (RFC 6298, 2.1).
const AnswerTimeout = 2 * time.Second

// question is the content of a request.
const question = "?"

// Request is the result of one request.
type Request struct {
	// Start is in ns since 1970, Took in ns.
	Start, Took int64
	// By is the name of the server that answered, empty if none did; Err is the
	// reason.
	By  string `json:",omitempty"`
	Err string `json:",omitempty"`
}

// End returns when the request was over, in ns since 1970.
func (r Request) End() int64 { return r.Start + r.Took }

// Client is a running client.
type Client struct{ worker *child.Worker }

// StartClient starts a client that sends requests to the target. When ctx ends,
// the client is killed.
func StartClient(ctx context.Context, target netip.AddrPort, at child.Place) (*Client, error) {
	w, err := child.Order(ctx, ClientRole, target, at)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return &Client{w}, nil
}

// End ends the client and returns its requests, sorted by their start.
func (c *Client) End() ([]Request, error) {
	var all []Request
	_, err := io.WriteString(c.worker.In, child.Over)
	if err == nil {
		err = c.worker.Finish(&all)
	}
	if err != nil {
		return nil, fmt.Errorf("end the client: %w", err)
	}
	return all, nil
}

// Kill ends the client and discards its requests.
func (c *Client) Kill() { c.worker.Close() }

// ClientMain runs the role of a client and returns the exit status.
func ClientMain() int {
	return child.ExitCode("failover", child.Work(os.Stdin, os.Stdout,
		func(target netip.AddrPort) (func(<-chan struct{}) []Request, error) {
			return func(over <-chan struct{}) []Request {
				return AskAll(Rate, over, func() (string, error) { return Ask(target) })
			}, nil
		}))
}

// AskAll sends requests at a rate per second until over is closed, and returns them sorted by their start. It sends
// them at scheduled times, so that one without an answer does not delay the others. ask returns which server answered.
func AskAll(rate int, over <-chan struct{}, ask func() (by string, err error)) []Request {
	var mu sync.Mutex
	var going sync.WaitGroup
	var all []Request
	for next := time.Now(); ; next = next.Add(time.Second / time.Duration(rate)) {
		select {
		case <-over:
			going.Wait()
			slices.SortFunc(all, func(a, b Request) int { return int(a.Start - b.Start) })
			return all
		case <-time.After(time.Until(next)):
		}
		going.Go(func() {
			start := time.Now()
			by, err := ask()
			r := Request{Start: start.UnixNano(), Took: time.Since(start).Nanoseconds(), By: by}
			if err != nil {
				r.By, r.Err = "", result.Reason(err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, r)
		})
	}
}

// Ask sends one request and returns the name of the server that answered. If there is
// no answer within AnswerTimeout, os.IsTimeout is true for the error.
func Ask(target netip.AddrPort) (string, error) {
	until := time.Now().Add(AnswerTimeout)
	conn, err := (&net.Dialer{Deadline: until}).Dial("tcp", target.String())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(until); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, question); err != nil {
		return "", err
	}
	name, err := io.ReadAll(io.LimitReader(conn, 64))
	if err == nil && len(name) == 0 {
		err = io.ErrUnexpectedEOF
	}
	return string(name), err
}
