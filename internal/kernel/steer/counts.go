package steer

import (
	"errors"
	"fmt"
	"time"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// maxCounted is how many slots have counters, as in bpf/include/maps.h.
const maxCounted = 8192

// The directions of counters: towards the endpoint, and from it.
const (
	Inward = iota
	Outward
)

// Counts are what has gone by a lead since it was made, inward and outward.
// Bytes are those of whole frames. What the kernel handles as one packet
// (generic segmentation offload) is one.
type Counts struct {
	Packets, Bytes, Drops [2]uint64
	// Flows counts those begun, also by processes of the host, whose packets
	// no program sees.
	Flows uint64
}

// Add adds another's.
func (c *Counts) Add(o Counts) {
	for d := range c.Packets {
		c.Packets[d] += o.Packets[d]
		c.Bytes[d] += o.Bytes[d]
		c.Drops[d] += o.Drops[d]
	}
	c.Flows += o.Flows
}

// Counted is a lead with its counts.
type Counted struct {
	Lead
	Counts
	// Live is how many flows go by it now.
	Live uint64
}

// Counts returns the leads that are counted one by one: the first 8191 of the
// table's.
func (p *Plane) Counts() ([]Counted, error) {
	live, err := p.live()
	if err != nil {
		return nil, err
	}
	all := make([]Counted, 0, len(p.table.slots))
	for slot, l := range p.table.slots {
		if slot >= maxCounted {
			continue
		}
		c, err := p.table.counts(slot)
		if err != nil {
			return nil, err
		}
		all = append(all, Counted{Lead: l, Counts: c, Live: live[slot]})
	}
	return all, nil
}

// live counts the flows of each slot that are not stale.
func (p *Plane) live() (map[uint32]uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	live := map[uint32]uint64{}
	for name, limits := range map[string]idleLimits{bpf.FairleadMapFlowsTcp: tcpIdle, bpf.FairleadMapYoungFlows: tcpIdle, bpf.FairleadMapFlowsUdp: udpIdle} {
		if p.maps[name] == nil {
			continue // as in Flows
		}
		err := each(p.maps[name], func(_ bpf.FairleadFlowKey, f bpf.FairleadFlow) {
			if now.Nano()-int64(f.Seen) <= int64(limits.of(f)) {
				live[f.Lead]++
			}
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
	}
	return live, nil
}

// idleLimits are how long a flow may be silent, as in bpf/include/track.h.
type idleLimits struct{ unanswered, answered time.Duration }

var (
	udpIdle = idleLimits{30 * time.Second, 120 * time.Second}
	tcpIdle = idleLimits{60 * time.Second, 5 * 24 * time.Hour}
)

// flowAnswered is FLOW_ANSWERED of bpf/include/flows.h.
const flowAnswered = 1

func (l idleLimits) of(f bpf.FairleadFlow) time.Duration {
	if f.Flags&flowAnswered != 0 {
		return l.answered
	}
	return l.unanswered
}

// Led returns how many packets and bytes were led, inward and outward, since
// the maps were made, by leads that are there still.
func (p *Plane) Led() (packets, bytes uint64, err error) {
	uncounted, err := p.table.counts(0)
	if err != nil {
		return 0, 0, err
	}
	sum := uncounted
	for slot := range p.table.slots {
		if slot >= maxCounted {
			continue
		}
		c, err := p.table.counts(slot)
		if err != nil {
			return 0, 0, err
		}
		sum.Add(c)
	}
	return sum.Packets[Inward] + sum.Packets[Outward], sum.Bytes[Inward] + sum.Bytes[Outward], nil
}

// Fill is how many entries the table has and how many it takes.
func (p *Plane) Fill() (entries, most int) { return len(p.table.slots), maxLeads - 1 }

// counts adds up what the CPUs have counted for a slot.
func (t *Table) counts(slot uint32) (sum Counts, err error) {
	var each []bpf.FairleadTotal
	if err := t.totals.Lookup(slot, &each); err != nil {
		return sum, fmt.Errorf("read the counters of lead %d: %w", slot, err)
	}
	for _, c := range each {
		sum.Add(Counts{Packets: c.Packets, Bytes: c.Bytes, Drops: c.Drops, Flows: c.Flows})
	}
	return sum, nil
}

// carry sets the counters of a slot to those of another, in whose place it
// comes.
func (t *Table) carry(from, to uint32) error {
	if from >= maxCounted {
		return t.begin(to, Counts{})
	}
	c, err := t.counts(from)
	return errors.Join(err, t.begin(to, c))
}

// begin sets the counters of a slot that an entry is about to have.
func (t *Table) begin(slot uint32, from Counts) error {
	if slot >= maxCounted {
		return nil
	}
	values := make([]bpf.FairleadTotal, ebpf.MustPossibleCPU())
	values[0] = bpf.FairleadTotal{Packets: from.Packets, Bytes: from.Bytes, Drops: from.Drops, Flows: from.Flows}
	if err := t.totals.Put(slot, values); err != nil {
		return fmt.Errorf("set the counters of lead %d: %w", slot, err)
	}
	return nil
}
