package stats

import (
	"net/netip"

	"fairlead/internal/api"
	"fairlead/internal/kernel/counter"
	"fairlead/internal/model"
)

// RealCount holds the counters that a data plane keeps for one real server.
type RealCount struct {
	// Live is the number of open flows, Begun the number of all flows that it got.
	Live, Begun uint64
	// Failed is the number of connections that it did not answer or refused.
	Failed uint64
	// Packets and Bytes count what goes to it (in) and comes from it (out) through
	// this host.
	Packets, Bytes counter.InOut
	// LiveOnly is true if the data plane has no counters left for the real server:
	// Begun, Packets and Bytes are unknown.
	LiveOnly bool
}

// RealCounts are counters by service name and the real server's address. Port 0 is the
// port that the client has connected to.
type RealCounts map[string]map[netip.AddrPort]RealCount

// CountReals returns the counters of real servers, as far as data planes count them.
type CountReals func([]model.VirtualService) (RealCounts, error)

// Add adds to the counters of a real server. A data plane may count each port of the
// service separately.
func (c RealCounts) Add(service string, at netip.AddrPort, n RealCount) {
	if service == "" || !at.IsValid() {
		return
	}
	if c[service] == nil {
		c[service] = map[netip.AddrPort]RealCount{}
	}
	was := c[service][at]
	c[service][at] = RealCount{was.Live + n.Live, was.Begun + n.Begun, was.Failed + n.Failed,
		was.Packets.Add(n.Packets), was.Bytes.Add(n.Bytes), was.LiveOnly || n.LiveOnly}
}

// AddReal sets the counters of a service's real server, as far as its data plane counts
// them, and which it does not count.
func (c RealCounts) AddReal(r *api.RealStats, v api.ServiceView) {
	n, counted := c[v.Name][r.Real]
	traits := v.PlaneInUse.Traits()
	oneWay := v.Forward == model.ForwardDirect || v.Forward == model.ForwardTunnel
	switch {
	case !v.Balances():
		r.NotCounted = "all figures: other hosts choose the real servers of the service"
	case !counted:
		r.NotCounted = "all figures: the data plane has not reported them"
	case n.LiveOnly:
		r.NotCounted = "flows, bytes and packets: the data plane has no counters left for the real server"
	case traits.FlowsOnly:
		r.NotCounted = "bytes and packets: the data plane sees only the first packet of a flow"
		r.Flows = &n.Begun
	default:
		r.Flows, r.Packets, r.Bytes = &n.Begun, counts(n.Packets, oneWay), counts(n.Bytes, oneWay)
		r.NotCounted = joined(
			reason{oneWay, "bytes and packets from the real server: they do not come through this host"},
			reason{traits.AtLinks, "packets of this host's own processes: their sockets are redirected"})
	}
}

// counts returns a count without the direction from the real server if oneWay is true.
func counts(n counter.InOut, oneWay bool) *api.Counted {
	c := &api.Counted{In: &n.In}
	if !oneWay {
		c.Out = &n.Out
	}
	return c
}
