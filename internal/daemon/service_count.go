package daemon

import (
	"net/netip"
	"time"

	"fairlead/internal/daemon/pool"
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
		counter.InOut{In: was.Packets.In + n.Packets.In, Out: was.Packets.Out + n.Packets.Out},
		counter.InOut{In: was.Bytes.In + n.Bytes.In, Out: was.Bytes.Out + n.Bytes.Out}}
}

// countAgain is the maximum age of the counters that are returned.
const countAgain = 100 * time.Millisecond

// flowCounts are the counters of the data planes.
type flowCounts struct {
	*state
	counts RealCounts
	// readAt is when they were read; zero if they must be read again.
	readAt time.Time
}

// read reads the counters of real servers, unless they are recent.
func (f *flowCounts) read() {
	if f.cfg.CountReals == nil || len(f.full.Services) == 0 || time.Since(f.readAt) < countAgain {
		return
	}
	counts, err := f.cfg.CountReals(f.full.Services)
	f.warn("count the flows of real servers", err)
	if err == nil {
		f.counts, f.readAt = counts, time.Now()
	}
}

// live returns the last known number of open flows of a real server, or nil if its
// data plane does not count them.
func (f *flowCounts) live(key pool.Key) *uint64 {
	c, counted := f.counts[key.Service][key.At]
	if !counted {
		return nil
	}
	return &c.Live
}
