package runner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
)

// counters are the values that the path's proof compares. Each path sets those
// that matter for it.
type counters struct {
	// links are the bytes on each of the proof's links, wires the bytes on each of
	// two wires.
	links             []uint64
	wires             []uint64
	proxy, translated uint64
	// proxying is the CPU time in ns of a proxy in a Docker engine's world.
	proxying uint64
	// flows is the number of flows in the path's tables, for paths with conntrack
	// and in suites that ask for flows.
	flows int
	// granted counts the listeners on the port that clients dial, own those on the
	// port that the workload requested.
	granted, own uint64
}

func (r *rig) counters(ctx context.Context, c result.Client) (counters, error) {
	var n counters
	var err error
	for _, l := range r.proofLinks(c) {
		bytes, err := l.bytes(r.world)
		if err != nil {
			return n, err
		}
		n.links = append(n.links, bytes)
	}
	for _, name := range r.underlays() {
		bytes, err := r.world.LinkBytes(name)
		if err != nil {
			return n, err
		}
		n.wires = append(n.wires, bytes)
	}
	if r.dock != nil && r.path.Via == model.ViaProxy {
		if n.proxying, err = r.proxyTime(); err != nil {
			return n, err
		}
	}
	if r.world.Proxy != nil {
		s, err := r.world.Proxy.Stats(ctx)
		if err != nil {
			return n, err
		}
		n.proxy = s.BytesIn + s.BytesOut
	}
	switch {
	case r.path.UsesEBPF():
		n.translated, err = r.world.EBPFBytes()
		if err == nil && r.crowd != nil {
			n.flows, err = r.world.EBPFFlows()
		}
	case r.path.Via == model.ViaSocket:
		n.granted, n.own, err = r.listeners()
	default:
		n.flows, err = r.world.Tracked()
	}
	return n, err
}

// listeners counts the listeners on the two TCP ports of a workload that is
// published via socket.
func (r *rig) listeners() (granted, own uint64, err error) {
	count := func(port uint16) uint64 {
		inUse, e := r.world.PortInUse(model.TCP, port)
		err = errors.Join(err, e)
		if inUse {
			return 1
		}
		return 0
	}
	return count(LoadPort), count(targetPort), err
}

// proofLink is a link that all traffic must pass: of the server host, or in the
// workload's sandbox.
type proofLink struct {
	name      string
	inSandbox bool
}

func (l proofLink) bytes(w *topology.World) (uint64, error) {
	if l.inSandbox {
		return w.SandboxBytes(web, l.name)
	}
	return w.LinkBytes(l.name)
}

func (l proofLink) String() string {
	if l.inSandbox {
		return l.name + " in the sandbox"
	}
	return l.name
}

// proofLinks returns the links that all traffic must pass. For a sandbox without a
// host interface, these are its only link and the wire below it.
func (r *rig) proofLinks(c result.Client) []proofLink {
	inside := proofLink{name: "eth0", inSandbox: true}
	switch {
	case r.path.Driver == model.DriverMacvlan || r.path.Driver == model.DriverIPvlan:
		return []proofLink{{name: topology.Wire}, inside}
	case r.path.Driver == model.DriverVXLAN:
		return []proofLink{{name: r.tunnel()}, inside}
	case r.path.Peer == suite.HandDNAT || r.path.Peer == suite.HandHops:
		return []proofLink{{name: handLink}}
	case r.path.ByOthers() && r.path.Driver != model.DriverHost || r.path.Driver == model.DriverDevice:
		return []proofLink{inside}
	case r.path.Driver != model.DriverHost:
		return []proofLink{{name: topology.EndpointLink(web)}}
	case c == result.Remote:
		return []proofLink{{name: topology.Wire}}
	default:
		return []proofLink{{name: "lo"}}
	}
}

// linkProof compares the counter of each of the proof's links with the bytes that
// were received.
func (r *rig) linkProof(c result.Client, before, after counters, received uint64) *result.Proof {
	p := &result.Proof{Want: received, Got: math.MaxUint64}
	var names []string
	for i, l := range r.proofLinks(c) {
		names = append(names, l.String())
		p.Got = min(p.Got, after.links[i]-before.links[i])
	}
	p.Counter, p.OK = "bytes on link "+strings.Join(names, " and "), p.Got >= p.Want
	return p
}

// wireProof checks both wires of an overlay. One carries the data, the other at
// least the acknowledgements, which are more than a ten-thousandth of it with
// today's receivers.
func wireProof(before, after counters, received uint64) result.Proof {
	p := result.Proof{Counter: "bytes on the wire with fewer", Want: max(1, received/10_000), Got: math.MaxUint64}
	for i := range after.wires {
		p.Got = min(p.Got, after.wires[i]-before.wires[i])
	}
	p.OK = p.Got >= p.Want
	return p
}

// prove compares the counters with the bytes that the workload itself received:
// the path's links must have carried all of them. On a path with a proxy, the
// proxy must have carried them too; on other paths, none of them.
func (r *rig) prove(c result.Client, before, after counters, received uint64, l *result.Ledger) *result.Proof {
	proxied := after.proxy - before.proxy
	if r.path.UsesEBPF() && c != result.Local {
		// A link does not count packets that are redirected past it. A local
		// client's socket is redirected when it connects, so its packets pass the
		// link like others.
		translated := after.translated - before.translated
		return &result.Proof{Counter: "bytes translated by eBPF", Want: received, Got: translated,
			Absent: "bytes through the proxy", AbsentGot: proxied, OK: translated >= received && proxied == 0}
	}
	p := r.linkProof(c, before, after, received)
	switch {
	case !p.OK:
	case r.path.Via == model.ViaProxy && r.dock != nil:
		spent := (after.proxying - before.proxying) / 1e3
		*p = result.Proof{Counter: "CPU time of Fairlead's proxy in µs", Want: 1, Got: spent, OK: spent > 0}
	case r.path.Via == model.ViaProxy:
		*p = result.Proof{Counter: "bytes through the proxy", Want: received, Got: proxied, OK: proxied >= received}
	case r.path.Via == model.ViaSocket:
		*p = result.Proof{Counter: "listeners on the granted port", Want: 1, Got: after.granted,
			Absent: "listeners on the workload's own port", AbsentGot: after.own, OK: after.granted == 1 && after.own == 0}
	case r.path.Wires > 1:
		*p = wireProof(before, after, received)
	case slices.Contains([]suite.Peer{suite.DockerProxy, suite.HAProxy, suite.Slirp4netns, suite.Pasta}, r.path.Peer):
		// These programs have no counters, but they cannot forward without CPU
		// time.
		spent := uint64(1e6 * l.Proxy)
		*p = result.Proof{Counter: fmt.Sprintf("CPU time of %s in µs", r.path.Peer), Want: 1, Got: spent, OK: spent > 0}
	case r.path.Tracked:
		*p = result.Proof{Counter: "flows in conntrack", Want: 1, Got: uint64(after.flows), OK: after.flows > 0}
	case r.path.InDocker():
		// Docker's rules make conntrack follow everything that passes the host.
	case r.path.Peer == suite.HandHops || r.path.Driver == model.DriverHost:
		p.Absent, p.AbsentGot = "flows in conntrack", uint64(after.flows)
		p.OK = after.flows == 0
	case r.world.Proxy != nil:
		p.Absent, p.AbsentGot = "bytes through the proxy", proxied
		p.OK = proxied == 0
	}
	return p
}

// proveFlows checks that the path has the number of additional flows that the
// suite asked for.
func proveFlows(p *result.Proof, want int, after counters) {
	if want > 0 && p.OK && after.flows < want {
		*p = result.Proof{Counter: "live flows", Want: uint64(want), Got: uint64(after.flows)}
	}
}

// forgetFlows removes the flows of earlier runs, in suites that compare numbers of
// flows.
func (r *rig) forgetFlows() error {
	switch {
	case r.crowd == nil:
		return nil
	case r.path.UsesEBPF():
		return r.world.FlushEBPFFlows()
	}
	return r.world.FlushTracked()
}
