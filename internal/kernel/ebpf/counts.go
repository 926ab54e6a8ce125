package ebpf

import (
	"fmt"
	"time"
	"unsafe"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
)

// maxCounted is the number of slots with counters, as in bpf/include/maps.h.
const maxCounted = 8192

// The directions of counters: to the endpoint, and from it.
const (
	Inward = iota
	Outward
)

// Counts are the counters of a mapping since it was created, inward and outward. Bytes
// are those of whole frames. A GSO packet counts as one packet.
type Counts struct {
	Packets, Bytes, Drops [2]uint64
	// Flows counts new flows, including those of processes of the host, whose packets
	// pass no program.
	Flows uint64
}

// Add adds o's counters.
func (c *Counts) Add(o Counts) {
	for d := range c.Packets {
		c.Packets[d] += o.Packets[d]
		c.Bytes[d] += o.Bytes[d]
		c.Drops[d] += o.Drops[d]
	}
	c.Flows += o.Flows
}

// Counted is a mapping with its counters.
type Counted struct {
	Mapping
	Counts
	// Live is the number of current flows.
	Live uint64
}

// Counts returns the mappings that have their own counters: those in the table's first
// 8191 slots.
func (t *Table) Counts(flows FlowMaps) ([]Counted, error) {
	live, err := flows.live()
	if err != nil {
		return nil, err
	}
	all := make([]Counted, 0, len(t.slots))
	for slot, l := range t.slots {
		if slot >= maxCounted {
			continue
		}
		all = append(all, Counted{Mapping: l, Counts: t.totals.sum(slot), Live: live[slot]})
	}
	return all, nil
}

// live counts the flows of each slot that are not stale. It leaves out one-way flows
// that the client has closed.
func (m FlowMaps) live() (map[uint32]uint64, error) {
	live := map[uint32]uint64{}
	err := m.eachEntry(func(_, stale bool, _ bpf.FairleadFlowKey, f bpf.FairleadFlow) {
		if !stale && f.Flags&flowClientClosed == 0 {
			live[f.Slot]++
		}
	})
	return live, err
}

// The flags of flows, as in bpf/include/flows.h.
const (
	flowAnswered     = 1 << 0
	flowPeer         = 1 << 1
	flowFinIn        = 1 << 2
	flowFinOut       = 1 << 3
	flowAckOut       = 1 << 5
	flowOneDirection = 1 << 9
	flowRst          = 1<<10 | 1<<11
	flowClientClosed = 1 << 12
)

// How long a flow may be idle, as in bpf/include/track.h.
const (
	udpUnanswered   = 30 * time.Second
	udpAnswered     = 120 * time.Second
	tcpUnanswered   = 60 * time.Second
	tcpAnswered     = 5 * 24 * time.Hour
	tcpClosing      = 120 * time.Second
	tcpReset        = 10 * time.Second
	tcpOneDirection = 124 * time.Minute
)

// isClosing reports whether one side has closed a TCP connection (is_closing in
// bpf/include/track.h).
func isClosing(f bpf.FairleadFlow) bool {
	if f.Flags&flowOneDirection != 0 {
		return f.Flags&flowFinIn != 0
	}
	return f.Flags&flowFinOut != 0 || f.Flags&(flowFinIn|flowAckOut) == flowFinIn|flowAckOut
}

// idleLimit returns how long a flow may be idle before the programs delete it.
func idleLimit(udp bool, f bpf.FairleadFlow) time.Duration {
	answered := f.Flags&flowAnswered != 0
	switch {
	case udp && (!answered || f.Flags&(flowOutbound|flowStream) == flowOutbound):
		return udpUnanswered
	case udp:
		return udpAnswered
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

// Translated returns how many packets and bytes were translated, inward and outward
// together, by the mappings that still exist.
func (t *Table) Translated() (packets, bytes uint64) {
	sum := t.totals.sum(0) // of those without their own counters
	for slot := range t.slots {
		sum.Add(t.totals.sum(slot))
	}
	return sum.Packets[Inward] + sum.Packets[Outward], sum.Bytes[Inward] + sum.Bytes[Outward]
}

// Fill returns the number of entries in the table and its capacity.
func (t *Table) Fill() (entries, most int) { return len(t.slots), maxMappings - 1 }

// totals are the counters of the first slots for each CPU, as in bpf/include/maps.h. The others have none.
type totals struct {
	memory *ebpf.Memory
	slots  int
}

const totalSize = int(unsafe.Sizeof(bpf.FairleadTotal{}))

// openTotals returns the counters in a map; none if m is nil.
func openTotals(m *ebpf.Map, slots int) (totals, error) {
	if m == nil {
		return totals{}, nil
	}
	memory, err := m.Memory()
	if err != nil {
		return totals{}, fmt.Errorf("map the counters: %w", err)
	}
	return totals{memory, slots}, nil
}

// each calls fn with the offset of a slot's counters for each CPU.
func (t totals) each(slot uint32, fn func(off int64)) {
	if int(slot) >= t.slots {
		return
	}
	for i := int(slot); i < int(t.memory.Size())/totalSize; i += t.slots {
		fn(int64(i * totalSize))
	}
}

// sum returns the sum of the counters of all CPUs for a slot.
func (t totals) sum(slot uint32) (sum Counts) {
	t.each(slot, func(off int64) {
		var c bpf.FairleadTotal
		load(t.memory, off, unsafe.Slice((*byte)(unsafe.Pointer(&c)), totalSize))
		sum.Add(Counts{Packets: c.Packets, Bytes: c.Bytes, Drops: c.Drops, Flows: c.Flows})
	})
	return sum
}

// set sets the sum of the counters of all CPUs for a slot.
func (t totals) set(slot uint32, from Counts) {
	c := bpf.FairleadTotal{Packets: from.Packets, Bytes: from.Bytes, Drops: from.Drops, Flows: from.Flows}
	t.each(slot, func(off int64) {
		store(t.memory, off, unsafe.Slice((*byte)(unsafe.Pointer(&c)), totalSize))
		c = bpf.FairleadTotal{} // the first CPU has all
	})
}
