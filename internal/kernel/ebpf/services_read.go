package ebpf

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"unsafe"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
)

// read reads the table that an earlier process left.
func (b *Balancer) read() error {
	found, err := b.readFrontends()
	if err != nil || len(found) == 0 {
		return err
	}
	if err := b.rings.open(); err != nil {
		return err
	}
	slots := b.readSlots()
	for id, all := range found {
		slices.SortFunc(all, func(a, b readFrontend) int { return cmp.Compare(a.Nth, b.Nth) })
		h := b.readService(id, all, slots[id])
		b.inUse[h.Name], b.names[id] = h, h.Name
	}
	return nil
}

// readFrontend is a frontend as found in the map.
type readFrontend struct {
	bpf.FairleadFrontend
	frontendOf
}

// readFrontends returns the frontends of each service, by service number.
func (b *Balancer) readFrontends() (map[uint32][]readFrontend, error) {
	found := map[uint32][]readFrontend{}
	var key bpf.FairleadFrontendKey
	var value bpf.FairleadFrontend
	it := b.maps[bpf.FairleadMapFlFrontends].Iterate()
	for it.Next(&key, &value) {
		found[value.Service] = append(found[value.Service],
			readFrontend{value, frontendOf{key.Class&1 != 0, at(key.Host, key.Port)}})
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read the frontends of services: %w", err)
	}
	return found, nil
}

// readSlots returns the slots of each service's real servers, and records which slots
// are in use or free.
func (b *Balancer) readSlots() map[uint32][]uint32 {
	slots := map[uint32][]uint32{}
	for slot := range uint32(maxReals) {
		r := b.readReal(slot)
		if r.LastGeneration != 0 {
			b.used = slot
		}
		if r.Generation != 0 {
			slots[r.Service] = append(slots[r.Service], slot)
			b.slots[slot] = true
		}
	}
	for slot := uint32(1); slot <= b.used; slot++ {
		if !b.slots[slot] {
			b.free = append(b.free, slot)
		}
	}
	return slots
}

// readService assembles a service from its frontends and slots.
func (b *Balancer) readService(id uint32, all []readFrontend, slots []uint32) *inUse {
	s := b.noted(id)
	name, _, _ := bytes.Cut(s.Name[:], []byte{0})
	f := all[0]
	h := &inUse{id: id, slots: slots, Service: Service{Name: string(name), UDP: f.udp, Scheduler: s.Scheduler,
		Scheduling: f.Scheduling,
		Forward:    f.Direct, GUE: swap(s.Gue), Persistence: f.Persistence}}
	for _, f := range all {
		h.Frontends = append(h.Frontends, f.at)
	}
	slices.SortFunc(h.slots, func(x, y uint32) int { return b.real(x).At.Compare(b.real(y).At) })
	index := map[uint16]uint16{}
	for i, slot := range h.slots {
		h.Reals = append(h.Reals, b.real(slot))
		index[uint16(slot)] = uint16(i)
	}
	h.ring = region{f.Chunk, f.First, (f.Buckets + slotsPerWord - 1) / slotsPerWord}
	for _, slot := range b.rings.get(h.ring, int(f.Buckets)) {
		h.Ring = append(h.Ring, index[slot])
	}
	b.rings.hold(h.ring)
	return h
}

// noted reads the stored name, scheduler and GUE port of a service.
func (b *Balancer) noted(id uint32) (s bpf.FairleadService) {
	load(b.services, int64(id)*int64(serviceSize), unsafe.Slice((*byte)(unsafe.Pointer(&s)), serviceSize))
	return s
}

// real reads the real server in a slot.
func (b *Balancer) real(slot uint32) Real {
	r := b.readReal(slot)
	found := Real{At: at(r.To, r.Port), Ifindex: r.Ifindex, Weight: r.Weight, Flags: r.Flags}
	if r.Seen != (bpf.FairleadAddress{}) {
		found.Seen = Netip(r.Seen)
	}
	return found
}

// Intact reports whether a service in the maps is as it was written. It returns true if
// there is no service of that name.
func (b *Balancer) Intact(name string) bool {
	h := b.inUse[name]
	return h == nil || b.intact(h)
}

// AllIntact reports whether all services in the maps are as they were written.
func (b *Balancer) AllIntact() bool {
	for _, h := range b.inUse {
		if !b.intact(h) {
			return false
		}
	}
	return true
}

func (b *Balancer) intact(h *inUse) bool {
	for i, slot := range h.slots {
		if r := b.readReal(slot); r.Generation == 0 || r.Service != h.id || b.real(slot) != h.Reals[i] {
			return false
		}
	}
	if b.noted(h.id).Gue != swap(h.GUE) {
		return false
	}
	var have bpf.FairleadFrontend
	for i, at := range h.Frontends {
		key, want := h.frontend(i, at)
		if b.maps[bpf.FairleadMapFlFrontends].Lookup(key, &have) != nil || have != want {
			return false
		}
	}
	return slices.Equal(b.rings.get(h.ring, len(h.Ring)), h.slotsOfRing()) || len(h.Ring) == 0
}

// Restore writes the real servers of a damaged service again. Set restores the rest.
func (b *Balancer) Restore(name string) {
	h := b.inUse[name]
	if h == nil {
		return
	}
	for i, slot := range h.slots {
		entry := b.entry(slot, h.Reals[i], h.id)
		if entry.Generation == 0 {
			entry.LastGeneration = max(entry.LastGeneration, 1)
			entry.Generation = entry.LastGeneration
		}
		b.writeReal(slot, entry)
	}
}

// RealCounts are the counters of a real server and of its connections.
type RealCounts struct {
	Counts
	// Active is the number of its flows, including sockets of processes of the host.
	Active uint64
	// Retries counts repeated SYNs that it had not answered, Refusals the SYNs that it
	// answered with a reset, and Resets the open connections that it has reset.
	Retries, Refusals, Resets uint64
	// NoTotals is true if the programs have no counters left for the real server: Counts
	// are unknown.
	NoTotals bool
}

// ComparesLoad reports whether a service chooses real servers by their number of flows.
func (b *Balancer) ComparesLoad() bool {
	for _, h := range b.inUse {
		if h.Scheduling == ByLoad || h.Scheduling == ByCount {
			return true
		}
	}
	return false
}

// RealCounts returns the counters of each service's real servers. It counts their flows
// again, because flows that were pushed out of a map or are stale have not decremented
// the active count.
func (b *Balancer) RealCounts(flows FlowMaps) (map[string]map[netip.AddrPort]RealCounts, error) {
	if b.empty() {
		return nil, nil
	}
	live, err := flows.live()
	if err != nil {
		return nil, err
	}
	all := make(map[string]map[netip.AddrPort]RealCounts, len(b.inUse))
	for name, h := range b.inUse {
		all[name] = make(map[netip.AddrPort]RealCounts, len(h.slots))
		for i, slot := range h.slots {
			all[name][h.Reals[i].At] = b.counts(slot, uint32(live[realBit|slot]))
		}
	}
	return all, nil
}

// counts reads the counters of the real server in a slot, and corrects its number of
// flows.
func (b *Balancer) counts(slot, active uint32) RealCounts {
	var c RealCounts
	var l bpf.FairleadLoad
	off := int64(slot) * int64(loadSize)
	load(b.loads, off, unsafe.Slice((*byte)(unsafe.Pointer(&l)), loadSize))
	if l.Active != active {
		store(b.loads, off, native(active))
	}
	c.Active = uint64(active) + uint64(l.Local)
	c.Retries, c.Refusals, c.Resets, c.NoTotals = l.Retries, l.Refusals, l.Resets, slot >= maxRealsCounted
	c.Counts = b.totals.sum(slot)
	return c
}

// maxRealsCounted is the number of real servers' slots with counters, as in
// bpf/include/maps.h.
const maxRealsCounted = 16384

// beginCounts sets the counters of a slot to 0.
func (b *Balancer) beginCounts(slot uint32) {
	store(b.loads, int64(slot)*int64(loadSize), make([]byte, loadSize))
	if b.readReal(slot).LastGeneration != 0 { // it was used before
		b.totals.set(slot, Counts{})
	}
}

// Ended returns the flows of what has been removed.
func (m FlowMaps) Ended(gone *Gone) ([]Flow, error) {
	var ended []Flow
	err := m.Each(func(f Flow) {
		if gone.has(f) {
			ended = append(ended, f)
		}
	})
	return ended, err
}

// forgetConn deletes the entry that keeps the flow's connection at its real server.
func (m FlowMaps) forgetConn(f Flow) error {
	names := []string{bpf.FairleadMapFlConnsTcp, bpf.FairleadMapFlYoungConns}
	if f.UDP {
		names = []string{bpf.FairleadMapFlConnsUdp}
	}
	name := bpf.FairleadAliasKey{
		Client: Address(f.Client.Addr()), ClientPort: swap(f.Client.Port()),
		Host: Address(f.Host.Addr()), HostPort: swap(f.Host.Port()), Class: f.key.Class,
	}
	for _, of := range names {
		if err := m[of].Delete(name); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forget the connection of %s to %s: %w", f.Client, f.Host, err)
		}
	}
	return nil
}

// swap converts a port between the host's and the network's byte order.
func swap(port uint16) uint16 { return bits.ReverseBytes16(port) }

// store and load cannot fail: every offset is within the map.
func store(m *ebpf.Memory, off int64, b []byte) {
	if _, err := m.WriteAt(b, off); err != nil {
		panic(fmt.Sprintf("store into an eBPF map at %d: %v", off, err))
	}
}

func load(m *ebpf.Memory, off int64, b []byte) {
	if _, err := m.ReadAt(b, off); err != nil {
		panic(fmt.Sprintf("read an eBPF map at %d: %v", off, err))
	}
}
