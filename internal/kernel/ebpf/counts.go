package ebpf

import (
	"errors"
	"fmt"
	"time"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
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
	Mapping
	Counts
	// Live is how many flows go by it now.
	Live uint64
}

// Counts returns the leads that are counted one by one: the first 8191 of the
// table's.
func (p *Datapath) Counts() ([]Counted, error) {
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
		all = append(all, Counted{Mapping: l, Counts: c, Live: live[slot]})
	}
	return all, nil
}

// live counts the flows of each slot that are not stale, without those of which
// only the client's packets are seen and that the client has closed.
func (p *Datapath) live() (map[uint32]uint64, error) {
	live := map[uint32]uint64{}
	err := p.eachFlow(func(_, stale bool, _ bpf.FairleadFlowKey, f bpf.FairleadFlow) {
		if !stale && f.Flags&flowReplaced == 0 {
			live[f.Slot]++
		}
	})
	return live, err
}

// The flags of flows, as in bpf/include/flows.h.
const (
	flowAnswered     = 1 << 0
	flowFinIn        = 1 << 2
	flowFinOut       = 1 << 3
	flowAckOut       = 1 << 5
	flowOneDirection = 1 << 9
	flowRst          = 1<<10 | 1<<11
	flowReplaced     = 1 << 12
)

// How long a flow may be silent, as in bpf/include/track.h.
const (
	udpUnanswered   = 30 * time.Second
	udpAnswered     = 120 * time.Second
	tcpUnanswered   = 60 * time.Second
	tcpAnswered     = 5 * 24 * time.Hour
	tcpClosing      = 120 * time.Second
	tcpReset        = 10 * time.Second
	tcpOneDirection = 124 * time.Minute
)

// isClosing reports whether an end has closed a TCP connection (is_closing in
// bpf/include/track.h).
func isClosing(f bpf.FairleadFlow) bool {
	if f.Flags&flowOneDirection != 0 {
		return f.Flags&flowFinIn != 0
	}
	return f.Flags&flowFinOut != 0 || f.Flags&(flowFinIn|flowAckOut) == flowFinIn|flowAckOut
}

// idleLimit returns how long a flow may be silent before the programs forget it.
func idleLimit(udp bool, f bpf.FairleadFlow) time.Duration {
	answered := f.Flags&flowAnswered != 0
	switch {
	case udp && answered:
		return udpAnswered
	case udp:
		return udpUnanswered
	case f.Flags&flowRst != 0:
		return tcpReset
	case !answered:
		return tcpUnanswered
	case isClosing(f):
		return tcpClosing
	case f.Flags&flowOneDirection != 0:
		return tcpOneDirection
	}
	return tcpAnswered
}

// Translated returns how many packets and bytes were led, inward and outward, since
// the maps were made, by leads that are there still.
func (p *Datapath) Translated() (packets, bytes uint64, err error) {
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
func (p *Datapath) Fill() (entries, most int) { return len(p.table.slots), maxMappings - 1 }

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
