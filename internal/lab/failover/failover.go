// Package failover measures what clients of a service notice when one of its real
// servers is killed, becomes silent, or is drained. It has real servers that
// answer with their names, a client that sends requests at a fixed rate, and the
// evaluation of the answers. It builds no path and balances nothing.
//
// # Theory of operation
//
//	client ── path ── balancer ──┬── real server a: killed, silenced, drained
//	 1,000 per second            ├── real server b
//	                             └── real server c
//
// Every request is a separate connection: a question, the server's name as the
// answer, and the end. Requests are sent at scheduled times, however long others
// take, so unanswered requests do not slow the rest down. Servers, client and
// balancer are separate processes in separate namespaces. A client keeps its
// requests in memory until it is asked to end, and evaluates nothing while it
// sends.
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

// The roles of the processes. CommandRole is the fairlead command line, which main
// dispatches; the others are in this package.
const (
	ServerRole  = "failover-server"
	ClientRole  = "failover-client"
	HostRole    = "failover-host"
	CommandRole = "command"
)

// ready is what a process prints when it has carried out an order.
const ready = "ready\n"

// part is a child process that has received its order and is ready.
type part struct {
	process *child.Process
	in      io.WriteCloser
	out     *bufio.Reader
}

// start starts a role at the given place, sends it its order and waits until it is
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
		return nil, fmt.Errorf("start %s: it printed %q: %w", role, said, err)
	}
	return p, nil
}

// kill ends the process as kill -9 does.
func (p *part) kill() {
	_ = p.process.Kill() // its exit status only says that it was killed
	p.in.Close()
}
