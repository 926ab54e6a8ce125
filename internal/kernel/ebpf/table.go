package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
)

// The bits of a mapping's flags, as in bpf/include/maps.h.
const (
	MappingAny = 1 << iota
	MappingReserved
	MappingLocal
	MappingGrant
	MappingReset
)

// The limits of the table, as in bpf/include/maps.h.
const (
	portsPerClass = 65536
	maxMappings   = 65536
	maxChain      = 64
)

// Mapping is an entry of the table, in the host's byte order. Table sets Next.
type Mapping = bpf.FairleadMapping

// mappingSize is the size of an entry in bytes, and portSize that of an index, which the
// kernel rounds up.
const (
	mappingSize = int(unsafe.Sizeof(Mapping{}))
	portSize    = 8
)

// ClassOf returns the number of an address family and protocol, as in
// bpf/include/maps.h.
func ClassOf(v4, udp bool) uint8 {
	var n uint8
	if !v4 {
		n = 2
	}
	if udp {
		n++
	}
	return n
}

// Table is the table of port mappings and grants, with a copy of what the programs read.
// Entries are changed by single stores into memory that the programs share, in an order
// in which the programs never read a partial entry.
type Table struct {
	ports, mappings *ebpf.Memory
	// totals are the counters of the slots.
	totals totals
	slots  map[uint32]Mapping
	heads  map[uint32]uint32
	// occupied counts the heads and entries that refer to each slot.
	occupied map[uint32]int
	// free are the slots that were used and no longer are, oldest first. Slots above
	// used were never used.
	free []uint32
	used uint32
}

// Table returns the data path's table.
func (p *Datapath) Table() *Table { return p.table }

// openTable reads the table from the maps.
func openTable(maps map[string]*ebpf.Map) (*Table, error) {
	t := &Table{slots: map[uint32]Mapping{}, heads: map[uint32]uint32{}, occupied: map[uint32]int{}}
	var err error
	if t.ports, err = maps[bpf.FairleadMapFlPorts].Memory(); err != nil {
		return nil, fmt.Errorf("map the table of ports: %w", err)
	}
	if t.mappings, err = maps[bpf.FairleadMapFlMappings].Memory(); err != nil {
		return nil, fmt.Errorf("map the table of mappings: %w", err)
	}
	if t.totals, err = openTotals(maps[bpf.FairleadMapFlTotals], maxCounted); err != nil {
		return nil, err
	}
	return t, t.read()
}

func (t *Table) read() error {
	heads := make([]byte, 4*portsPerClass*portSize)
	if _, err := t.ports.ReadAt(heads, 0); err != nil {
		return fmt.Errorf("read the table of ports: %w", err)
	}
	for i := range uint32(4 * portsPerClass) {
		if head := binary.NativeEndian.Uint32(heads[i*portSize:]); head != 0 {
			t.heads[i] = head
			t.occupied[head]++
			if err := t.follow(head); err != nil {
				return err
			}
		}
	}
	for i := uint32(1); i <= t.used; i++ {
		if _, ok := t.slots[i]; !ok {
			t.free = append(t.free, i)
		}
	}
	return nil
}

// follow reads the mappings of a chain.
func (t *Table) follow(slot uint32) error {
	for slot != 0 {
		if _, known := t.slots[slot]; known {
			return nil
		}
		var l Mapping
		buf := make([]byte, mappingSize)
		if _, err := t.mappings.ReadAt(buf, int64(slot)*int64(mappingSize)); err != nil {
			return fmt.Errorf("read mapping %d: %w", slot, err)
		}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&l)), mappingSize), buf)
		t.slots[slot] = l
		t.used = max(t.used, slot)
		if slot = l.Next; slot != 0 {
			t.occupied[slot]++
		}
	}
	return nil
}

func (t *Table) empty() bool { return len(t.slots) == 0 }

// Mappings returns the entries, in no order.
func (t *Table) Mappings() []Mapping {
	all := make([]Mapping, 0, len(t.slots))
	for _, l := range t.slots {
		l.Next = 0
		all = append(all, l)
	}
	return all
}

// ErrFull means that the table has no room.
var ErrFull = errors.New("the eBPF table is full")

// Change is one change of the table: New is added, or replaces Old if both are set. If
// only Old is set, it is deleted.
type Change struct{ Old, New *Mapping }

// Apply makes the changes. Returns ErrFull, and makes none, if the table has no room.
func (t *Table) Apply(changes []Change) error {
	if err := t.fits(changes); err != nil {
		return err
	}
	for _, c := range changes {
		switch {
		case c.New == nil:
			t.remove(c.Old)
		case c.Old == nil:
			t.insert(*c.New)
		default:
			t.replace(c.Old, *c.New)
		}
	}
	return nil
}

// fits checks the room for entries, and the length of the chains.
func (t *Table) fits(changes []Change) error {
	coming := 0
	longer := map[uint32]int{}
	for _, c := range changes {
		if c.New == nil {
			continue
		}
		coming++
		if c.Old != nil {
			continue
		}
		for port := int(c.New.First); port <= int(c.New.Last); port++ {
			at := index(c.New, port)
			if _, begun := longer[at]; !begun {
				longer[at] = t.length(t.heads[at])
			}
			if longer[at]++; longer[at] > maxChain {
				return fmt.Errorf("port %d is published on more than %d host addresses: publish it on every address instead", port, maxChain)
			}
		}
	}
	if len(t.slots)+coming >= maxMappings {
		return fmt.Errorf("%w: it holds %d entries", ErrFull, maxMappings-1)
	}
	return nil
}

func index(l *Mapping, port int) uint32 { return uint32(l.Class)*portsPerClass + uint32(port) }

func (t *Table) length(slot uint32) int {
	n := 0
	for ; slot != 0; slot = t.slots[slot].Next {
		n++
	}
	return n
}

// insert writes the entry, and then the references to it: the head of each port that has
// none, or the end of the port's chain.
func (t *Table) insert(l Mapping) {
	l.Next = 0
	slot := t.take()
	t.totals.set(slot, Counts{})
	t.write(slot, l)
	for port := int(l.First); port <= int(l.Last); port++ {
		at := index(&l, port)
		last := t.heads[at]
		if last == 0 {
			t.head(at, slot)
			continue
		}
		for last != slot && t.slots[last].Next != 0 {
			last = t.slots[last].Next
		}
		if last != slot {
			t.link(last, slot)
		}
	}
}

// remove redirects all references past the entry.
func (t *Table) remove(old *Mapping) {
	slot, ok := t.find(old)
	if !ok {
		return
	}
	t.redirect(slot, t.slots[slot].Next)
	t.release(slot)
}

// replace redirects all references to a new entry, which takes the old one's place in
// the chain.
func (t *Table) replace(old *Mapping, l Mapping) {
	slot, ok := t.find(old)
	if !ok {
		t.insert(l)
		return
	}
	l.Next = t.slots[slot].Next
	fresh := t.take()
	t.totals.set(fresh, t.totals.sum(slot))
	t.write(fresh, l)
	t.redirect(slot, fresh)
	t.release(slot)
}

// release frees a slot without references.
func (t *Table) release(slot uint32) {
	t.count(t.slots[slot].Next, -1)
	delete(t.slots, slot)
	delete(t.occupied, slot)
	t.free = append(t.free, slot)
}

// count adds n to the number of references to a slot.
func (t *Table) count(slot uint32, n int) {
	if slot != 0 {
		t.occupied[slot] += n
	}
}

// redirect changes all references to a slot to another slot. Mostly these are the heads
// of the entry's ports. Others are entries of a chain, and heads of ports that a longer
// chain has had.
func (t *Table) redirect(slot, to uint32) {
	l := t.slots[slot]
	for port := int(l.First); port <= int(l.Last); port++ {
		if at := index(&l, port); t.heads[at] == slot {
			t.head(at, to)
		}
	}
	if t.occupied[slot] == 0 {
		return
	}
	for other, o := range t.slots {
		if o.Next == slot {
			t.link(other, to)
		}
	}
	for at, head := range t.heads {
		if head == slot {
			t.head(at, to)
		}
	}
}

// find returns the slot of the entry for the same host address and ports.
func (t *Table) find(l *Mapping) (uint32, bool) {
	for slot := t.heads[index(l, int(l.First))]; slot != 0; slot = t.slots[slot].Next {
		o := t.slots[slot]
		if o.Class == l.Class && o.First == l.First && o.Last == l.Last && o.Host == l.Host &&
			(o.Flags^l.Flags)&MappingAny == 0 {
			return slot, true
		}
	}
	return 0, false
}

// TranslatesTo reports whether the table maps a port of a host address to that endpoint
// and port.
func (t *Table) TranslatesTo(udp bool, host, endpoint netip.AddrPort) bool {
	h, class, port := Address(host.Addr()), ClassOf(host.Addr().Is4(), udp), host.Port()
	for slot := t.heads[uint32(class)*portsPerClass+uint32(port)]; slot != 0; slot = t.slots[slot].Next {
		l := t.slots[slot]
		if port < l.First || port > l.Last || l.Flags&MappingAny == 0 && l.Host != h {
			continue
		}
		return l.Flags&MappingGrant == 0 && l.To == Address(endpoint.Addr()) && l.ToFirst+
			(port-l.First) == endpoint.Port()
	}
	return false
}

// take returns a slot that no entry has. A slot rests before it is used again: a program
// that has found the earlier entry may still be reading it, and would send the packet to
// the new entry's endpoint.
func (t *Table) take() uint32 {
	if len(t.free) == 0 || len(t.free) < restingSlots && t.used < maxMappings-1 {
		t.used++
		return t.used
	}
	slot := t.free[0]
	t.free = t.free[1:]
	return slot
}

func (t *Table) write(slot uint32, l Mapping) {
	t.slots[slot] = l
	t.count(l.Next, 1)
	store(t.mappings, int64(slot)*int64(mappingSize), unsafe.Slice((*byte)(unsafe.Pointer(&l)), mappingSize))
}

func (t *Table) link(slot, next uint32) {
	l := t.slots[slot]
	t.count(l.Next, -1)
	t.count(next, 1)
	l.Next = next
	t.slots[slot] = l
	store(t.mappings, int64(slot)*int64(mappingSize)+int64(unsafe.Offsetof(l.Next)), native(next))
}

func (t *Table) head(at, slot uint32) {
	t.count(t.heads[at], -1)
	t.count(slot, 1)
	if slot == 0 {
		delete(t.heads, at)
	} else {
		t.heads[at] = slot
	}
	store(t.ports, int64(at)*portSize, native(slot))
}

func native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// Address converts an address to the programs' form: IPv4-mapped, in network byte order.
func Address(a netip.Addr) bpf.FairleadAddress {
	var out bpf.FairleadAddress
	if !a.IsValid() {
		return out
	}
	b := a.As16()
	for i := range out.W {
		out.W[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return out
}

// Netip converts an address back.
func Netip(a bpf.FairleadAddress) netip.Addr {
	var b [16]byte
	for i, w := range a.W {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	return netip.AddrFrom16(b).Unmap()
}
