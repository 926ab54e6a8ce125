package machine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/load"
	"fairlead/internal/lab/peer"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
	"fairlead/internal/plan"
)

// Local is this machine.
type Local struct {
	Facts plan.Facts
	// Link is the link that connects it with the other machine; empty on one
	// machine.
	Link string
}

// Unavailable implements Machine.
func (l *Local) Unavailable(_ context.Context, path string, f result.Family) (string, error) {
	p, ok := suite.FindPath(path)
	p.Family = f
	if !ok {
		return "", fmt.Errorf("there is no path %q", path)
	}
	return peer.Unavailable(p, l.Facts, ""), nil
}

// Build implements Machine.
func (l *Local) Build(ctx context.Context, o Order) (Part, error) {
	p, ok := suite.FindPath(o.Path)
	p.Family = o.Family
	if !ok {
		return nil, fmt.Errorf("there is no path %q", o.Path)
	}
	s, err := o.suite()
	if err != nil {
		return nil, err
	}
	o.Uplink.Link = l.Link
	r, err := rig.New(ctx, p, peer.Maker(p), rig.Options{Suite: s, Facts: l.Facts, Docker: o.Docker, Part: o.Part,
		Uplink: o.Uplink})
	if err != nil {
		return nil, err
	}
	return Of(r), nil
}

// Close implements Machine. The parts are closed by those who have built them.
func (l *Local) Close() error { return nil }

// Of returns the part that a rig has.
func Of(r *rig.Rig) Part { return &part{rig: r} }

// part is a rig on this machine with its current window.
type part struct {
	rig    *rig.Rig
	before rig.Counters
	window *ledger.Window
	ended  *result.Ledger
}

// Server implements Part.
func (p *part) Server() *load.Server { return p.rig.Server }

// Client implements Part.
func (p *part) Client(c result.Client) *load.Client { return p.rig.Clients[c] }

// FlowAddrs implements Part.
func (p *part) FlowAddrs() []netip.Addr { return p.rig.Crowd }

// Prepare implements Part.
func (p *part) Prepare(ctx context.Context, c result.Client) (err error) {
	if err = p.rig.ForgetFlows(); err == nil {
		p.before, err = p.rig.Count(ctx, c)
	}
	return err
}

// Begin implements Part.
func (p *part) Begin(_ context.Context, c result.Client) (err error) {
	p.window, err = ledger.Begin(p.rig.Parties(c))
	return err
}

// End implements Part.
func (p *part) End(context.Context) (result.Ledger, ledger.Gates, error) {
	if p.window == nil {
		return result.Ledger{}, ledger.Gates{}, errors.New("end the window: none is open")
	}
	l, gates, err := p.window.End()
	p.window, p.ended = nil, &l
	return l, gates, err
}

// Memory implements Part.
func (p *part) Memory(context.Context) (float64, error) { return p.rig.ProxyMemory() }

// Prove implements Part.
func (p *part) Prove(ctx context.Context, t Traffic) (*result.Proof, error) {
	after, err := p.rig.Count(ctx, t.Client)
	if err != nil {
		return nil, err
	}
	proof := p.rig.Prove(rig.Window{Client: t.Client, Before: p.before, After: after, Ledger: p.ended,
		Received: t.Received, Requests: t.Requests, Served: t.Served, Sources: t.Sources})
	if p.rig.Server != nil { // the path keeps the flows, and not the client
		rig.ProveFlows(proof, t.Flows, after)
	}
	return proof, nil
}

// Close implements Part.
func (p *part) Close() error { return p.rig.Close() }
