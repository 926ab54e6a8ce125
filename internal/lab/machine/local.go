package machine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/child"
	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/load"
	"fairlead/internal/lab/peer"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/site"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/tool"
	"fairlead/internal/lab/topology"
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
	if p.Gateways > 0 && o.Part == topology.ClientPart {
		if err := r.World.Route(site.Subnet(p.Family)); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	return Of(r, s), nil
}

// Close implements Machine. The parts are closed by those who have built them.
func (l *Local) Close() error { return nil }

// Of returns the part that a rig has, for measurements of the suite.
func Of(r *rig.Rig, s suite.Suite) Part { return &part{rig: r, suite: s} }

// part is a rig on this machine with its current window.
type part struct {
	rig    *rig.Rig
	suite  suite.Suite
	before rig.Counters
	window *ledger.Window
	ended  *result.Ledger
	// server is the server of a tool, nil if none runs.
	server *child.Process
	// site is nil if there is no web site.
	site *site.Site
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
	if p.hasServer() { // the path keeps the flows, and not the client
		rig.ProveFlows(proof, t.Flows, after)
	}
	return proof, nil
}

// driven returns a tool and a workload of the suite that it supports.
func (p *part) driven(name, workload string) (t tool.Tool, w suite.Workload, err error) {
	i := slices.IndexFunc(p.suite.Workloads, func(w suite.Workload) bool { return w.Name == workload })
	if i < 0 || !slices.Contains(tool.Names(), name) {
		return t, w, fmt.Errorf("there is no tool %q or no workload %q", name, workload)
	}
	w = p.suite.Workloads[i]
	t, ok := tool.For(name, w)
	if !ok {
		return t, w, fmt.Errorf("tool %s does not support workload %s", name, workload)
	}
	return t, w, nil
}

// Serve implements Part.
func (p *part) Serve(ctx context.Context, c result.Client, tool, workload string) error {
	t, w, err := p.driven(tool, workload)
	if err != nil {
		return err
	}
	if p.server != nil || !p.hasServer() {
		return errors.New("start a tool's server: one runs already, or the part has no server")
	}
	p.server, err = t.Serve(ctx, p.rig, w, c)
	return err
}

// EndServe implements Part.
func (p *part) EndServe(context.Context) error {
	if p.server == nil {
		return nil
	}
	_ = p.server.Kill() // its exit status says only that it was killed
	p.server = nil
	return nil
}

// Drive implements Part.
func (p *part) Drive(ctx context.Context, c result.Client, tool, workload string, seconds int) ([]byte, error) {
	t, w, err := p.driven(tool, workload)
	if err != nil {
		return nil, err
	}
	if p.rig.Clients[c] == nil || seconds < 1 || seconds > maxSeconds {
		return nil, fmt.Errorf("drive %s as client %s for %d s: the part has no such client, or it is not 1 to %d s", tool,
			c, seconds, maxSeconds)
	}
	out, err := t.Drive(ctx, p.rig, w, c, seconds)
	if len(out) > maxOutput {
		return nil, fmt.Errorf("the output of %s has %d bytes, more than %d", tool, len(out), maxOutput)
	}
	return out, err
}

// maxSeconds limits the time of a tool's client, maxOutput the size of its output.
const (
	maxSeconds = 3600
	maxOutput  = 2 << 20
)

// hasServer reports whether the part has the server host.
func (p *part) hasServer() bool { return p.rig.World.Part().HasServer() }

// Close implements Part.
func (p *part) Close() error {
	ctx := context.Background()
	return errors.Join(p.EndServe(ctx), p.CloseSite(ctx), p.rig.Close())
}
