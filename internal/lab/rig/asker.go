package rig

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"fairlead/internal/child"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/startup"
)

// asker is a child that sends requests as a client.
type asker struct {
	child *child.Process
	in    io.WriteCloser
	out   *bufio.Reader
}

// startAsker starts a client's asker, which serves every start.
func (r *Rig) startAsker(ctx context.Context, c result.Client) (*asker, error) {
	cmd := child.Self(startup.AskRole)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p, err := child.Start(ctx, cmd, r.askerPlace(c))
	return &asker{child: p, in: in, out: bufio.NewReader(out)}, err
}

// askerPlace is the client's place, except for a client in another container: that
// one is on the host, because the client does not matter for a container's start.
func (r *Rig) askerPlace(c result.Client) child.Place {
	if c == result.Remote {
		return r.Place(r.World.Client(), ClientGroup)
	}
	return r.Place(r.World.Server(), ClientGroup)
}

// Ask makes the client ask a container until it gets the answer.
func (r *Rig) Ask(c result.Client, proto string, addr netip.AddrPort, answer string) error {
	a := r.askers[c]
	if _, err := io.WriteString(a.in, startup.Question(proto, addr.String(), answer)); err != nil {
		return fmt.Errorf("ask the container: %w", err)
	}
	reply, err := a.out.ReadString('\n')
	if err != nil {
		return fmt.Errorf("ask the container: %w", err)
	}
	if reply != startup.Answered {
		return fmt.Errorf("ask the container: %s", strings.TrimSpace(reply))
	}
	return nil
}
