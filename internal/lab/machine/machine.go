// Package machine is a machine of the laboratory: it builds the part of a path that
// the machine has, and measures there. Local is this machine; the package agent has a
// machine that is reached over the network. It does not choose what is measured, and
// it compares nothing.
//
// # Theory of operation
//
// On one machine, one part has both hosts of a path. Between two machines each has a
// part with one host, and the clock, CPU ledger and counters of that machine. A window
// is opened and closed on all parts at the same time, but each part reads its own
// clock, so clocks of different machines are never compared. The messages of the load
// generator are passed on to a client or server that runs elsewhere.
package machine

import (
	"context"
	"fmt"
	"net/netip"

	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
)

// Order says which part of which path is built, and for what.
type Order struct {
	Path string
	Part topology.Part
	// Suite and Workloads name what is measured, and Clients from where.
	Suite     string
	Workloads []string
	Clients   []result.Client
	// Family is the address family of the path.
	Family result.Family
	// Netem are the conditions of the wire; nil if there are none.
	Netem *result.Netem `json:",omitempty"`
	// Docker is a directory with programs of a Docker engine; it is for this machine
	// only.
	Docker string `json:"-"`
	// Uplink connects the part with the other machine. Its link is chosen by the
	// machine itself.
	Uplink topology.Uplink
}

// suite returns the suite with the workloads and clients of the order.
func (o Order) suite() (suite.Suite, error) {
	s, ok := suite.Find(o.Suite)
	if !ok {
		return s, fmt.Errorf("there is no suite %q", o.Suite)
	}
	all := s
	s.Clients, s.Workloads, s.Netem = o.Clients, nil, o.Netem
	for _, name := range o.Workloads {
		w, ok := all.FindWorkload(name)
		if !ok {
			return s, fmt.Errorf("there is no workload %q", name)
		}
		s.Workloads = append(s.Workloads, w)
	}
	return s, nil
}

// Machine is a machine of the laboratory, this one or another one with an agent. It builds parts of paths: the
// server's side, the client's side, or both. Only Close may be called while another method runs.
type Machine interface {
	// Unavailable returns why the machine cannot build the path; "" if it can.
	Unavailable(ctx context.Context, path string, f result.Family) (string, error)
	// Build builds a part, which exists until it is closed.
	Build(ctx context.Context, o Order) (Part, error)
	// Close removes everything that exists for this laboratory.
	Close() error
}

// Traffic is what the generator knows of a window that has ended.
type Traffic struct {
	Client result.Client
	// Received are the bytes that client and server have received. The others are
	// described at rig.Window.
	Received, Requests, Served uint64
	Sources                    []netip.Addr
	// Flows is the number of flows that the suite asked for.
	Flows int
}

// Part is the part of a path that a machine has. Its window is opened and closed once
// per run: Prepare, Begin, End, Prove.
type Part interface {
	// Server returns the generator's server, Client its client; nil if the part does
	// not have it.
	Server() *load.Server
	Client(c result.Client) *load.Client
	// FlowAddrs are the client's addresses of live flows; nil if there are none.
	FlowAddrs() []netip.Addr
	// Prepare deletes the flows of earlier runs and reads the counters.
	Prepare(ctx context.Context, c result.Client) error
	// Begin opens the window.
	Begin(ctx context.Context, c result.Client) error
	// End closes the window and returns the machine's CPU time in it.
	End(ctx context.Context) (result.Ledger, ledger.Gates, error)
	// Memory returns the memory in bytes of the processes that carry the path's
	// traffic.
	Memory(ctx context.Context) (float64, error)
	// Serve starts the server of a tool that package tool has, for a client and a workload
	// of the order. EndServe ends it.
	Serve(ctx context.Context, c result.Client, tool, workload string) error
	EndServe(ctx context.Context) error
	// Drive runs the tool's client for a number of seconds, and returns its output.
	Drive(ctx context.Context, c result.Client, tool, workload string, seconds int) ([]byte, error)
	// Prove reads the counters again and compares them with the traffic.
	Prove(ctx context.Context, t Traffic) (*result.Proof, error)
	// Close removes the part.
	Close() error
}
