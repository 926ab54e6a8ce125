package daemon

import (
	"context"
	"net/netip"
	"time"

	"fairlead/internal/health"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
)

// RealCount is what a plane counts of a real server.
type RealCount struct {
	// Live are the flows that it has, Begun those that it was given in all.
	Live, Begun uint64
	// Failed are connections that it has not answered, or refused.
	Failed uint64
	// Packets and Bytes are to it (in) and from it (out), as far as they come
	// through this host.
	Packets, Bytes kernel.InOut
}

// RealCounts are those of real servers, by their services' names and where they
// are, port 0 for the one that the client has dialled.
type RealCounts map[string]map[netip.AddrPort]RealCount

// CountReals counts the flows of real servers, where the planes do.
type CountReals func([]model.VirtualService) (RealCounts, error)

// Add adds what is counted of a real server, which may be counted for each of
// its service's ports.
func (c RealCounts) Add(service string, at netip.AddrPort, n RealCount) {
	if service == "" || !at.IsValid() {
		return
	}
	if c[service] == nil {
		c[service] = map[netip.AddrPort]RealCount{}
	}
	was := c[service][at]
	c[service][at] = RealCount{was.Live + n.Live, was.Begun + n.Begun, was.Failed + n.Failed,
		kernel.InOut{In: was.Packets.In + n.Packets.In, Out: was.Packets.Out + n.Packets.Out},
		kernel.InOut{In: was.Bytes.In + n.Bytes.In, Out: was.Bytes.Out + n.Bytes.Out}}
}

// countAgain is how old a count may be that is shown.
const countAgain = 100 * time.Millisecond

// countFlows counts the flows of real servers, unless it has just been done.
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

// flowsOf returns how many flows a real server had when they were counted last,
// nil where the plane does not count.
func (d *Daemon) flowsOf(key realKey) *uint64 {
	c, counted := d.services.counts[key.service][key.at]
	if !counted {
		return nil
	}
	return &c.Live
}

// observeEvery is how often is looked whether clients' connections fail.
const observeEvery = 100 * time.Millisecond

// observe tells the checks how clients' connections fare, of services that want
// it, until ctx ends. It costs nothing while none does.
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

// observeOnce compares the counts with those before, and returns them; nil where
// no service wants it.
func (d *Daemon) observeOnce(before RealCounts) RealCounts {
	d.mu.Lock()
	var passive []string
	for name, p := range d.services.pools {
		if p.spec.Check.Passive {
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
			// What is answered counts as well: few failures among many are the
			// clients' own.
			failed, answered := c.Failed-was.Failed, c.Begun-was.Begun
			if known && c.Failed >= was.Failed && c.Begun >= was.Begun && failed+answered > 0 {
				d.health.Signal(name, at, health.Signal{Failed: int(failed), Answered: int(answered - min(answered, failed))})
			}
		}
	}
	if now == nil {
		now = RealCounts{}
	}
	return now
}
