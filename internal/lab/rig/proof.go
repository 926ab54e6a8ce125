package rig

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
)

// Counters are the values that a path's proof compares. Each path sets those that
// matter for it.
type Counters struct {
	// links are the bytes on each of the path's links, wires the bytes on each of
	// two wires.
	links []uint64
	wires []uint64
	// translated are the bytes that eBPF programs have redirected.
	translated uint64
	// proxied are the bytes through the user-space proxy of the rig's engine, if it
	// has one.
	proxied  uint64
	hasProxy bool
	// ProxyTime is the CPU time that the path's user-space proxy has used, in ns, if the rig can only measure that of
	// it. 0 for other paths.
	ProxyTime uint64
	// Flows is the number of flows in the path's tables, for paths with conntrack
	// and in suites that ask for flows.
	Flows int
	// granted counts the listeners on the port that clients dial, requested those
	// on the port that the workload requested.
	granted, requested uint64
	// ip are the bytes that the client's network namespace has received and sent in
	// IPv6 packets, if hasIP is true.
	ip    uint64
	hasIP bool
}

// Window is what is known of a run that a proof can use: the counters before and
// after it, the bytes that client and server have received, and the CPU time.
type Window struct {
	Client        result.Client
	Before, After Counters
	Received      uint64
	Ledger        *result.Ledger
	// Requests counts the requests over HTTP that the client sent and got answers to,
	// Served those that the server answered. Sources are the addresses from which it
	// got them.
	Requests, Served uint64
	Sources          []netip.Addr
}

// proxied returns the bytes through the user-space proxy of the rig's engine.
func (w Window) proxied() uint64 { return w.After.proxied - w.Before.proxied }

// Count reads the counters that Prove compares, for a run with this client.
func (r *Rig) Count(ctx context.Context, c result.Client) (Counters, error) {
	var n Counters
	for _, l := range r.links(c) {
		bytes, err := l.bytes(r.World)
		if err != nil {
			return n, err
		}
		n.links = append(n.links, bytes)
	}
	if err := r.countFamily(c, &n); err != nil {
		return n, err
	}
	if r.part.HasServer() {
		return n, r.Maker.Count(ctx, r, &n)
	}
	return n, n.countWires(r.Path, r.World)
}

// countWires reads the counters of both wires if the path is an overlay over two.
func (n *Counters) countWires(p suite.Path, w *topology.World) error {
	if p.Wires < 2 {
		return nil
	}
	for _, name := range []string{topology.Wire, topology.SecondWire} {
		bytes, err := w.LinkBytes(name)
		if err != nil {
			return err
		}
		n.wires = append(n.wires, bytes)
	}
	return nil
}

// links returns the links that the client's traffic must pass. A rig without the
// server host has only the wire. In a part, the macvlan of a sandbox is beside the
// wire, and not on it.
func (r *Rig) links(c result.Client) []Link {
	exposed := siteOf(r.Path).exposed
	switch {
	case r.part == topology.ClientPart && exposed != "":
		return []Link{{Name: exposed}}
	case r.part == topology.ClientPart && r.Path.Wires > 1:
		return nil // neither wire carries both directions
	case r.part == topology.ClientPart:
		return []Link{{Name: topology.Wire}}
	case r.part == topology.ServerPart && exposed == topology.Wire:
		return []Link{inside}
	}
	return r.Maker.Links(c)
}

// Prove compares the counters with the bytes that the workload itself received:
// the path's links must have carried all of them. On a path with a proxy, the
// proxy must have carried them too; on other paths, none of them.
func (r *Rig) Prove(w Window) *result.Proof {
	p := LinkProof(r.links(w.Client), w)
	switch {
	case p.OK && r.part.HasServer():
		p = r.Maker.Proof(w, p)
	case r.part == topology.ClientPart && r.Path.Wires > 1:
		p = WireProof(w)
	}
	ProveFamily(p, w)
	return p
}

// LinkProof compares the counter of each link with the bytes that were received.
// A link that packets bypass is no part of a proof.
func LinkProof(links []Link, w Window) *result.Proof {
	p := &result.Proof{Want: w.Received, Got: math.MaxUint64}
	var names []string
	for i, l := range links {
		names = append(names, l.String())
		p.Got = min(p.Got, w.After.links[i]-w.Before.links[i])
	}
	p.Counter, p.OK = "bytes on link "+strings.Join(names, " and "), p.Got >= p.Want
	return p
}

// WireProof checks both wires of an overlay. One carries the data, the other at
// least the acknowledgements, which are more than a ten-thousandth of it with
// today's receivers.
func WireProof(w Window) *result.Proof {
	p := &result.Proof{Counter: "bytes on the wire with fewer", Want: max(1, w.Received/10_000), Got: math.MaxUint64}
	for i := range w.After.wires {
		p.Got = min(p.Got, w.After.wires[i]-w.Before.wires[i])
	}
	p.OK = p.Got >= p.Want
	return p
}

// CPUProof returns the proof that a program has used CPU time: programs without
// counters cannot forward without it.
func CPUProof(program string, seconds float64) *result.Proof {
	spent := uint64(1e6 * seconds)
	return &result.Proof{Counter: fmt.Sprintf("CPU time of %s in µs", program), Want: 1, Got: spent, OK: spent > 0}
}

// GatewayProof returns the proof that a gateway has forwarded all requests: the server
// has got them, and none from the client itself.
func GatewayProof(w Window) *result.Proof {
	p := &result.Proof{Counter: "requests at the server", Want: w.Requests, Got: w.Served,
		Absent: "requests from the client itself"}
	if slices.Contains(w.Sources, topology.ClientAddr4) || slices.Contains(w.Sources, topology.ClientAddr6) {
		p.AbsentGot = w.Served
	}
	p.OK = p.Got >= p.Want && p.AbsentGot == 0
	return p
}

// WithoutConntrack adds to the proof that conntrack has followed no flow.
func WithoutConntrack(p *result.Proof, w Window) *result.Proof {
	p.Absent, p.AbsentGot = "flows in conntrack", uint64(w.After.Flows)
	p.OK = w.After.Flows == 0
	return p
}

// ProveFlows checks that the path has the number of additional flows that the
// suite asked for.
func ProveFlows(p *result.Proof, want int, after Counters) {
	if want > 0 && p.OK && after.Flows < want {
		*p = result.Proof{Counter: "live flows", Want: uint64(want), Got: uint64(after.Flows)}
	}
}

// ForgetFlows removes the flows of earlier runs, in suites that compare numbers of
// flows.
func (r *Rig) ForgetFlows() error {
	if r.Crowd == nil || !r.part.HasServer() {
		return nil
	}
	return carrierOf(r.Path).forget(r.World)
}
