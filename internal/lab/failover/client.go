package failover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"fairlead/internal/child"
)

// Rate is how many requests a client sends a second.
const Rate = 1000

// Patience is how long a client waits for an answer: what takes longer has
// failed. A SYN that nobody answers is sent again once meanwhile, after a second
// (RFC 6298, 2.1).
const Patience = 2 * time.Second

// question is what a request asks.
const question = "?"

// Request is what became of one.
type Request struct {
	// Start is in ns since 1970, Took in ns.
	Start, Took int64
	// By is who has answered, empty if nobody has; Err says why.
	By  string `json:",omitempty"`
	Err string `json:",omitempty"`
}

// End returns when the request was over, in ns since 1970.
func (r Request) End() int64 { return r.Start + r.Took }

// Client is a running client.
type Client struct{ *part }

// over is what ends its asking.
const over = "\"over\"\n"

// StartClient starts a client that asks the target. The end of ctx kills it.
func StartClient(ctx context.Context, target netip.AddrPort, at child.Place) (*Client, error) {
	p, err := start(ctx, ClientRole, target, at)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return &Client{p}, nil
}

// End ends the client and returns its requests in the order of their starts.
func (c *Client) End() ([]Request, error) {
	var all []Request
	_, err := io.WriteString(c.in, over)
	if err == nil {
		err = json.NewDecoder(c.out).Decode(&all)
	}
	if err = errors.Join(err, c.in.Close(), c.process.Wait()); err != nil {
		return nil, fmt.Errorf("end the client: %w", err)
	}
	return all, nil
}

// Kill ends a client whose requests nobody wants.
func (c *Client) Kill() { c.kill() }

// ClientMain is the role of a client. It goes when its input ends and not
// before: who reads the requests must not lose the rest by its end.
func ClientMain() int {
	in := json.NewDecoder(os.Stdin)
	var target netip.AddrPort
	if err := in.Decode(&target); err != nil {
		fmt.Fprintln(os.Stderr, "fairlead failover: read the order:", err)
		return 1
	}
	ended := make(chan struct{})
	go func() {
		var word string
		_ = in.Decode(&word) // the end of the input is the end, too
		close(ended)
	}()
	fmt.Print(ready)
	if err := json.NewEncoder(os.Stdout).Encode(askAll(target, ended)); err != nil {
		return 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func askAll(target netip.AddrPort, ended <-chan struct{}) []Request {
	var mu sync.Mutex
	var going sync.WaitGroup
	var all []Request
	for next := time.Now(); ; next = next.Add(time.Second / Rate) {
		select {
		case <-ended:
			going.Wait()
			slices.SortFunc(all, func(a, b Request) int { return int(a.Start - b.Start) })
			return all
		case <-time.After(time.Until(next)):
		}
		going.Go(func() {
			r := ask(target)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, r)
		})
	}
}

func ask(target netip.AddrPort) Request {
	start := time.Now()
	by, err := Ask(target)
	r := Request{Start: start.UnixNano(), Took: time.Since(start).Nanoseconds(), By: by}
	if err != nil {
		r.By, r.Err = "", why(err)
	}
	return r
}

// Ask asks once and returns who has answered.
func Ask(target netip.AddrPort) (string, error) {
	until := time.Now().Add(Patience)
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

// why is an error without the ports, which are others each time.
func why(err error) string {
	var op *net.OpError
	var errno syscall.Errno
	doing := "read"
	if errors.As(err, &op) {
		doing = op.Op
	}
	switch {
	case op != nil && op.Timeout():
		return doing + ": no answer"
	case errors.As(err, &errno):
		return doing + ": " + errno.Error()
	case errors.Is(err, io.ErrUnexpectedEOF):
		return doing + ": closed without an answer"
	}
	return err.Error()
}
