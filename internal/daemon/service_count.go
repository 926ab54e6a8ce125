package daemon

import (
	"context"
	"net/netip"
	"time"

	"fairlead/internal/daemon/pool"
	"fairlead/internal/health"
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

// countFlows reads the counters of real servers, unless they are recent.
func (d *Daemon) countFlows() {
	s := &d.services
	if d.cfg.CountReals == nil || len(d.full.Services) == 0 || time.Since(s.countedAt) < countAgain {
		return
	}
	counts, err := d.cfg.CountReals(d.full.Services)
	d.warn("count the flows of real servers", err)
	if err == nil {
		s.counts, s.countedAt = counts, time.Now()
	}
}

// flowsOf returns the last known number of open flows of a real server, or nil if its
// data plane does not count them.
func (d *Daemon) flowsOf(key pool.Key) *uint64 {
	c, counted := d.services.counts[key.Service][key.At]
	if !counted {
		return nil
	}
	return &c.Live
}

// observeEvery is the interval at which the daemon looks for failed connections of
// clients.
const observeEvery = 100 * time.Millisecond

// observe reports the success and failure of clients' connections to the checks, for
// services with passive checks, until ctx ends. Without such services it does nothing.
func (d *Daemon) observe(ctx context.Context) {
	if d.cfg.CountReals == nil {
		return
	}
	var before RealCounts
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.services.observed:
		case <-again:
		}
		again = nil
		if before = d.observeOnce(before); before != nil {
			again = time.After(observeEvery)
		}
	}
}

// observeOnce compares the counters with the earlier ones, and returns them. It
// returns nil if no service has passive checks.
func (d *Daemon) observeOnce(before RealCounts) RealCounts {
	d.mu.Lock()
	var passive []string
	for name, p := range d.services.pools {
		if p.Spec.Check.Passive {
			passive = append(passive, name)
		}
	}
	if len(passive) == 0 {
		d.mu.Unlock()
		return nil
	}
	d.services.countedAt = time.Time{}
	d.countFlows()
	now := d.services.counts
	d.mu.Unlock()
	for _, name := range passive {
		for at, c := range now[name] {
			was, known := before[name][at]
			// Answered connections count too: a few failures among many connections
			// are caused by the clients.
			failed, answered := c.Failed-was.Failed, c.Begun-was.Begun
			if known && c.Failed >= was.Failed && c.Begun >= was.Begun && failed+answered > 0 {
				d.health.Signal(name, at, health.Signal{Failed: int(failed),
					Answered: int(answered - min(answered, failed))})
			}
		}
	}
	if now == nil {
		now = RealCounts{}
	}
	return now
}
