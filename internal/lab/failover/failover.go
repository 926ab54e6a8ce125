// Package failover finds out what clients of a service notice when one of its
// real servers is killed, falls silent, or is drained: real servers that say
// their names, a client that asks at a fixed rate, and the judgement of what it
// was answered. It builds no path and balances nothing.
//
// # Theory of operation
//
//	client ── path ── balancer ──┬── real server a: killed, silenced, drained
//	 1,000 a second              ├── real server b
//	                             └── real server c
//
// Every request is a connection of its own: a question, the server's name for
// an answer, and the end. Requests go out by a schedule that was settled
// beforehand, however long others take, so that what is not answered does not
// slow the rest down. All three parts are processes with namespaces of their
// own; a client keeps its requests until it is told to end, and nothing is
// worked out while it asks.
package failover

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"fairlead/internal/child"
)

// The roles of the processes. CommandRole is the command line itself, for those
// who have it (main) to dispatch; the others are in this package.
const (
	ServerRole  = "failover-server"
	ClientRole  = "failover-client"
	HostRole    = "failover-host"
	CommandRole = "command"
)

// ready is what a process says when it does what it was ordered to.
const ready = "ready\n"

// part is a process that was given an order, and is ready.
type part struct {
	process *child.Process
	in      io.WriteCloser
	out     *bufio.Reader
}

// start starts a role in its place, hands it its order and waits until it is
// ready.
func start(ctx context.Context, role string, order any, at child.Place) (*part, error) {
	cmd := child.Self(role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	process, err := child.Start(ctx, cmd, at)
	if err != nil {
		return nil, err
	}
	p := &part{process, in, bufio.NewReader(out)}
	err = json.NewEncoder(in).Encode(order)
	said := ""
	if err == nil {
		said, err = p.out.ReadString('\n')
	}
	if said != ready {
		p.kill()
		return nil, fmt.Errorf("start %s: it says %q: %w", role, said, err)
	}
	return p, nil
}

// kill ends the process as kill -9 does.
func (p *part) kill() {
	_ = p.process.Kill() // its exit status says only that we killed it
	p.in.Close()
}
