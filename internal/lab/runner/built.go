package runner

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/load"
	"fairlead/internal/lab/machine"
	"fairlead/internal/lab/peer"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
)

// built is a path that exists: as a rig on this machine, or as parts on two.
type built struct {
	Path suite.Path
	// Rig is nil if the path is in parts on two machines.
	Rig *rig.Rig
	// server is the part with the server's host, client that with the client's. On
	// one machine they are the same part.
	server, client machine.Part
}

// whole returns a path on this machine.
func whole(r *rig.Rig, s suite.Suite) *built {
	part := machine.Of(r, s)
	return &built{Path: r.Path, Rig: r, server: part, client: part}
}

// of returns the part with the client.
func (b *built) of(c result.Client) machine.Part {
	if c == result.Remote {
		return b.client
	}
	return b.server
}

// serverFor returns the generator's server that the client connects to.
func (b *built) serverFor(c result.Client) *load.Server {
	if c == result.Outbound {
		return b.Rig.Outside // such paths are never in parts
	}
	return b.server.Server()
}

// dial returns the address that the client dials for a port of the workload.
func (b *built) dial(c result.Client, port uint16) netip.AddrPort {
	if b.Rig != nil {
		return b.Rig.Dial(c, port)
	}
	return peer.Maker(b.Path).Dial(c, port)
}

// Close removes the path.
func (b *built) Close() error {
	parts := []machine.Part{b.client}
	if b.server != b.client {
		parts = append(parts, b.server)
	}
	var errs []error
	for _, part := range parts {
		if part != nil {
			errs = append(errs, part.Close())
		}
	}
	return errors.Join(errs...)
}

// divided reports whether the session has two machines.
func (o Options) divided() bool { return o.Server != nil && o.Client != nil }

// buildParts builds the path in parts on the session's two machines.
func (s *session) buildParts(ctx context.Context, p suite.Path) (b *built, err error) {
	server, client := topology.NewWire()
	order := machine.Order{Path: p.Name, Suite: s.Suite.Name, Clients: s.Suite.Clients,
		Family: s.Suite.Family, Netem: s.Suite.Netem}
	for _, w := range s.Suite.Workloads {
		order.Workloads = append(order.Workloads, w.Name)
	}
	b = &built{Path: p}
	order.Part, order.Uplink = topology.ServerPart, topology.Uplink{MAC: server, Peer: client}
	if b.server, err = s.Server.Build(ctx, order); err == nil {
		order.Part, order.Uplink = topology.ClientPart, topology.Uplink{MAC: client, Peer: server}
		b.client, err = s.Client.Build(ctx, order)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// window is the measured window on all machines that take part.
type window struct {
	// names are the names of the machines in reports, empty if there is one machine;
	// parts is what they have of the path.
	names []string
	parts []machine.Part
	// ledgers and gates are set by end.
	ledgers []result.Ledger
	gates   []ledger.Gates
	memory  float64
}

// window returns the window of a run for the client.
func (b *built) window(c result.Client) *window {
	if b.client == b.server {
		return &window{names: []string{""}, parts: []machine.Part{b.server}}
	}
	w := &window{names: []string{string(topology.ServerPart)}, parts: []machine.Part{b.server}}
	if c == result.Remote {
		w.names, w.parts = append(w.names, string(topology.ClientPart)), append(w.parts, b.client)
	}
	return w
}

// all calls do for every part at the same time.
func (w *window) all(do func(i int, p machine.Part) error) error {
	if len(w.parts) == 1 {
		return do(0, w.parts[0])
	}
	errs := make(chan error, len(w.parts))
	for i, p := range w.parts {
		go func() {
			err := do(i, p)
			if err != nil {
				err = fmt.Errorf("%s's machine: %w", w.names[i], err)
			}
			errs <- err
		}()
	}
	var all []error
	for range w.parts {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

func (w *window) prepare(ctx context.Context, c result.Client) error {
	return w.all(func(_ int, p machine.Part) error { return p.Prepare(ctx, c) })
}

func (w *window) begin(ctx context.Context, c result.Client) error {
	return w.all(func(_ int, p machine.Part) error { return p.Begin(ctx, c) })
}

// end closes the window. If memory is true, it measures that of the path's processes,
// which the first part has.
func (w *window) end(ctx context.Context, memory bool) (err error) {
	w.ledgers, w.gates = make([]result.Ledger, len(w.parts)), make([]ledger.Gates, len(w.parts))
	err = w.all(func(i int, p machine.Part) (err error) {
		w.ledgers[i], w.gates[i], err = p.End(ctx)
		return err
	})
	if err == nil && memory {
		w.memory, err = w.parts[0].Memory(ctx)
	}
	return err
}

// account sets the run's ledger: that of the only machine, or the sum of all.
func (w *window) account(run *result.Run) {
	run.Ledger = &w.ledgers[0]
	if w.names[0] == "" {
		return
	}
	run.Ledgers = map[string]result.Ledger{}
	for i, l := range w.ledgers {
		run.Ledgers[w.names[i]] = l
	}
	if len(w.ledgers) > 1 {
		sum := result.SumLedgers(w.ledgers)
		run.Ledger = &sum
	}
}

// prove sets the run's proof: that of the path's machine, or that of another machine
// if its proof fails.
func (w *window) prove(ctx context.Context, t machine.Traffic, run *result.Run) error {
	proofs := make([]*result.Proof, len(w.parts))
	err := w.all(func(i int, p machine.Part) (err error) {
		proofs[i], err = p.Prove(ctx, t)
		return err
	})
	if err != nil {
		return err
	}
	run.Proof = proofs[0]
	for i, p := range proofs[1:] {
		if run.Proof.OK && !p.OK {
			run.Proof = p
			run.Proof.Counter += " of the " + w.names[i+1] + "'s machine"
		}
	}
	return nil
}
