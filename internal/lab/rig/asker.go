package rig

import (
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
type asker struct{ worker *child.Worker }

// startAsker starts a client's asker, which serves every start.
func (r *Rig) startAsker(ctx context.Context, c result.Client) (*asker, error) {
	w, err := child.StartWorker(ctx, startup.AskRole, r.askerPlace(c))
	return &asker{w}, err
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
	if _, err := io.WriteString(a.worker.In, startup.Question(proto, addr.String(), answer)); err != nil {
		return fmt.Errorf("ask the container: %w", err)
	}
	reply, err := a.worker.Out.ReadString('\n')
	if err != nil {
		return fmt.Errorf("ask the container: %w", err)
	}
	if reply != startup.Answered {
		return fmt.Errorf("ask the container: %s", strings.TrimSpace(reply))
	}
	return nil
}
