package runner

import (
	"context"
	"errors"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
)

// counters are what the path's proof compares. Each path fills those that say
// something about it.
type counters struct {
	link, proxy, led uint64
	// flows are those that the path remembers, as far as conntrack does or the
	// suite asks for any.
	flows int
	// granted and own count the listeners on the port that is dialled and on
	// the one that the workload asked for.
	granted, own uint64
}

func (r *rig) counters(ctx context.Context, c result.Client) (counters, error) {
	var n counters
	var err error
	if n.link, err = r.world.LinkBytes(r.proofLink(c)); err != nil {
		return n, err
	}
	if r.world.Proxy != nil {
		s, err := r.world.Proxy.Stats(ctx)
		if err != nil {
			return n, err
		}
		n.proxy = s.BytesIn + s.BytesOut
	}
	switch r.path.Via {
	case model.ViaEBPF:
		n.led, err = r.world.LedBytes()
		if err == nil && r.crowd != nil {
			n.flows, err = r.world.LedFlows()
		}
	case model.ViaSocket:
		n.granted, n.own, err = r.listeners()
	default:
		n.flows, err = r.world.Tracked()
	}
	return n, err
}

// listeners counts who holds the two TCP ports of a workload that is published
// via socket.
func (r *rig) listeners() (granted, own uint64, err error) {
	count := func(port uint16) uint64 {
		held, e := r.world.Holds(model.TCP, port)
		err = errors.Join(err, e)
		if held {
			return 1
		}
		return 0
	}
	return count(LoadPort), count(ownPort), err
}

// proofLink is the link of the server host that all traffic must cross.
func (r *rig) proofLink(c result.Client) string {
	switch {
	case r.path.ByHand():
		return handLink
	case r.path.Driver != model.DriverHost:
		return topology.EndpointLink(web)
	case c == result.Remote:
		return topology.Wire
	default:
		return "lo"
	}
}

// prove compares the counters with the bytes that the workload itself
// received: the path's link must have carried them all; a proxy must have,
// too, or else nothing of them.
func (r *rig) prove(c result.Client, before, after counters, received uint64, l *result.Ledger) *result.Proof {
	proxied := after.proxy - before.proxy
	if r.path.Via == model.ViaEBPF && c != result.Local {
		// A link does not count what is redirected past it. A local client is
		// turned when it connects: its packets go over the link like any.
		led := after.led - before.led
		return &result.Proof{Counter: "bytes led by eBPF", Want: received, Got: led,
			Absent: "bytes through the proxy", AbsentGot: proxied, OK: led >= received && proxied == 0}
	}
	p := &result.Proof{Counter: "bytes on link " + r.proofLink(c), Want: received, Got: after.link - before.link}
	p.OK = p.Got >= p.Want
	switch {
	case !p.OK:
	case r.path.Via == model.ViaProxy:
		*p = result.Proof{Counter: "bytes through the proxy", Want: received, Got: proxied, OK: proxied >= received}
	case r.path.Via == model.ViaSocket:
		*p = result.Proof{Counter: "listeners on the granted port", Want: 1, Got: after.granted,
			Absent: "listeners on the workload's own port", AbsentGot: after.own, OK: after.granted == 1 && after.own == 0}
	case r.path.Peer == suite.DockerProxy:
		// It counts nothing, but it cannot forward without CPU time.
		spent := uint64(1e6 * l.Proxy)
		*p = result.Proof{Counter: "CPU time of docker-proxy in µs", Want: 1, Got: spent, OK: spent > 0}
	case r.path.Tracked:
		*p = result.Proof{Counter: "flows in conntrack", Want: 1, Got: uint64(after.flows), OK: after.flows > 0}
	case r.path.Peer == suite.HandHops || r.path.Driver == model.DriverHost:
		p.Absent, p.AbsentGot = "flows in conntrack", uint64(after.flows)
		p.OK = after.flows == 0
	case r.world.Proxy != nil:
		p.Absent, p.AbsentGot = "bytes through the proxy", proxied
		p.OK = proxied == 0
	}
	return p
}

// proveFlows holds a path to the flows that it was asked to carry besides.
func proveFlows(p *result.Proof, want int, after counters) {
	if want > 0 && p.OK && after.flows < want {
		*p = result.Proof{Counter: "live flows", Want: uint64(want), Got: uint64(after.flows)}
	}
}

// forgetFlows has a path begin without those of an earlier run, where the
// number of flows is what is compared.
func (r *rig) forgetFlows() error {
	switch {
	case r.crowd == nil:
		return nil
	case r.path.Via == model.ViaEBPF:
		return r.world.ForgetLed()
	}
	return r.world.ForgetTracked()
}
