package ebpf

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"unsafe"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
)

// How a real server is chosen, as in bpf/include/services.h.
const (
	ByFlow = iota
	ByClient
	ByTurn
	ByLoad
	ByCount
)

// The flags of a real server, as in bpf/include/services.h.
const (
	RealRemote = 1 << iota
	RealMasquerade
	RealDraining
	RealTunnel
	RealLocal
)

// How the packets of a service reach its real servers, as in bpf/include/services.h.
const (
	// ForwardNAT translates addresses and ports.
	ForwardNAT = iota
	// ForwardDirect changes only MAC addresses.
	ForwardDirect
	// ForwardTunnel encapsulates packets to real servers on other hosts.
	ForwardTunnel
)

// The limits of the table of services, as in bpf/include.
const (
	maxServices = 8192
	maxReals    = 32768
	realBit     = 1 << 31
)

// The bits in the map fl_served, as in bpf/include/services.h.
const (
	servedAny = 1 << iota
	servedRemote
)

// Real is a real server of a service.
type Real struct {
	// At is its address. Port 0 keeps the port that the client dialled.
	At netip.AddrPort
	// Seen is the host's address that it sees instead of the client's.
	Seen netip.Addr
	// Ifindex is the host's end of its link, or the link towards it.
	Ifindex uint32
	Weight  uint32
	Flags   uint16
}

// Service is a virtual service as the programs use it.
type Service struct {
	Name      string
	UDP       bool
	Frontends []netip.AddrPort
	// Scheduler is the caller's number of the scheduler, Scheduling the kind of choice
	// that the programs make.
	Scheduler, Scheduling uint8
	// Forward is how packets reach the real servers.
	Forward uint8
	// GUE is the UDP port on which real servers accept GUE; 0 is IP in IP.
	GUE uint16
	// Persistence is how long a client keeps its real server, in seconds.
	Persistence uint32
	Reals       []Real
	// Ring contains indexes of Reals.
	Ring []uint16
}

// Gone lists what a change removed. The flows of these real servers and frontends must
// be ended.
type Gone struct {
	reals     map[uint32]bool
	frontends map[frontendOf]bool
}

type frontendOf struct {
	udp bool
	at  netip.AddrPort
}

// Any reports whether a change removed anything.
func (g *Gone) Any() bool { return len(g.reals)+len(g.frontends) > 0 }

func (g *Gone) has(f Flow) bool {
	return f.Real != 0 && (g.reals[f.Real] || g.frontends[frontendOf{f.UDP, f.Host}])
}

// Balancer is the table of virtual services, with a copy of what the programs read. A
// service is changed by writing its new ring beside the old one, and then its frontends,
// one by one.
type Balancer struct {
	maps            map[string]*ebpf.Map
	reals, services *ebpf.Memory
	loads           *ebpf.Memory
	totals          totals
	rings           rings
	inUse           map[string]*inUse
	names           map[uint32]string
	// slots are the slots in use.
	slots map[uint32]bool
	free  []uint32
	used  uint32
}

// inUse is a service in the table.
type inUse struct {
	Service
	id    uint32
	slots []uint32
	ring  region
}

const (
	realSize    = int(unsafe.Sizeof(bpf.FairleadReal{}))
	serviceSize = int(unsafe.Sizeof(bpf.FairleadService{}))
	loadSize    = int(unsafe.Sizeof(bpf.FairleadLoad{}))
)

// Balancer returns the data path's table of services.
func (p *Datapath) Balancer() *Balancer { return p.balancer }

// openBalancer reads the table from the maps.
func openBalancer(maps map[string]*ebpf.Map) (*Balancer, error) {
	b := &Balancer{maps: maps, inUse: map[string]*inUse{}, names: map[uint32]string{}, slots: map[uint32]bool{}}
	b.rings = rings{outer: maps[bpf.FairleadMapFlRings]}
	for _, m := range []struct {
		name string
		to   **ebpf.Memory
	}{{bpf.FairleadMapFlReals, &b.reals}, {bpf.FairleadMapFlServices, &b.services},
		{bpf.FairleadMapFlLoads, &b.loads}} {
		var err error
		if *m.to, err = maps[m.name].Memory(); err != nil {
			return nil, fmt.Errorf("map the table of %s: %w", m.name, err)
		}
	}
	var err error
	if b.totals, err = openTotals(maps[bpf.FairleadMapFlRealTotals], maxRealsCounted); err != nil {
		return nil, err
	}
	return b, b.read()
}

func (b *Balancer) empty() bool { return len(b.inUse) == 0 }

// Services returns the services in the table, in no order.
func (b *Balancer) Services() []Service {
	all := make([]Service, 0, len(b.inUse))
	for _, h := range b.inUse {
		all = append(all, h.Service)
	}
	return all
}

// Close releases the memory of the rings.
func (b *Balancer) Close() error { return b.rings.close() }

// Set creates or changes a service, and records in gone what that removes. Call
// WriteServed after the last of several changes. Returns ErrFull if the table has no
// room.
func (b *Balancer) Set(s Service, gone *Gone) error {
	old := b.inUse[s.Name]
	if old == nil {
		id, err := b.number(s.Name)
		if err != nil {
			return err
		}
		old = &inUse{Service: Service{Name: s.Name, UDP: s.UDP}, id: id}
	}
	next := &inUse{Service: s, id: old.id}
	fresh, err := b.setReals(next, old)
	if err == nil {
		next.ring, err = b.rings.put(next.slotsOfRing())
	}
	if err != nil {
		b.release(fresh)
		if b.inUse[s.Name] == nil {
			delete(b.names, old.id)
		}
		return err
	}
	b.note(next)
	err = b.mapping(next, old, gone)
	b.inUse[s.Name] = next
	b.rings.retire(old.ring)
	b.drop(old, next, gone)
	return err
}

// Del deletes a service, as Set does.
func (b *Balancer) Del(name string, gone *Gone) error {
	old := b.inUse[name]
	if old == nil {
		return nil
	}
	none := &inUse{Service: Service{Name: name, UDP: old.UDP}, id: old.id}
	err := b.mapping(none, old, gone)
	b.drop(old, none, gone)
	b.rings.retire(old.ring)
	delete(b.inUse, name)
	delete(b.names, old.id)
	return err
}

// number assigns a free number to a service.
func (b *Balancer) number(name string) (uint32, error) {
	for id := range uint32(maxServices) {
		if _, taken := b.names[id]; !taken {
			b.names[id] = name
			return id, nil
		}
	}
	return 0, fmt.Errorf("%w: it holds %d services", ErrFull, maxServices)
}

// slotsOfRing returns the ring as slots, as the programs read it.
func (h *inUse) slotsOfRing() []uint16 {
	ring := make([]uint16, len(h.Ring))
	for i, at := range h.Ring {
		ring[i] = uint16(h.slots[at])
	}
	return ring
}

// setReals writes the real servers. Each keeps its slot or gets a new one.
func (b *Balancer) setReals(next, old *inUse) (fresh []uint32, err error) {
	had := make(map[netip.AddrPort]int, len(old.Reals))
	for i, r := range old.Reals {
		had[r.At] = i
	}
	next.slots = make([]uint32, len(next.Reals))
	for i, r := range next.Reals {
		if at, ok := had[r.At]; ok {
			next.slots[i] = old.slots[at]
			if r != old.Reals[at] {
				b.writeReal(next.slots[i], b.entry(next.slots[i], r, next.id))
			}
			continue
		}
		slot, err := b.takeSlot()
		if err != nil {
			return fresh, err
		}
		fresh = append(fresh, slot)
		next.slots[i] = slot
		entry := b.entry(slot, r, next.id)
		entry.LastGeneration++
		entry.Generation = entry.LastGeneration
		b.beginCounts(slot)
		b.writeReal(slot, entry)
	}
	return fresh, nil
}

// entry returns a real server in the programs' form for a slot.
func (b *Balancer) entry(slot uint32, r Real, service uint32) bpf.FairleadReal {
	entry := b.readReal(slot)
	entry.To, entry.Seen, entry.Ifindex = Address(r.At.Addr()), Address(r.Seen), r.Ifindex
	entry.Port, entry.Weight, entry.Flags, entry.Service = swap(r.At.Port()), r.Weight, r.Flags, service
	return entry
}

// restingSlots is how many unused slots there are before one is used again. Until then
// stale entries that refer to the slot may be deleted.
const restingSlots = 256

// takeSlot reserves a slot that no real server has.
func (b *Balancer) takeSlot() (uint32, error) {
	var slot uint32
	switch {
	case b.used+1 < maxReals && len(b.free) < restingSlots:
		b.used++
		slot = b.used
	case len(b.free) > 0:
		slot, b.free = b.free[0], b.free[1:]
	default:
		return 0, fmt.Errorf("%w: it holds %d real servers", ErrFull, maxReals-1)
	}
	b.slots[slot] = true
	return slot, nil
}

// release removes the real servers from their slots.
func (b *Balancer) release(slots []uint32) {
	for _, slot := range slots {
		entry := b.readReal(slot)
		entry.Generation = 0
		b.writeReal(slot, entry)
		delete(b.slots, slot)
		b.free = append(b.free, slot)
	}
}

// drop releases the real servers that are not in the next state.
func (b *Balancer) drop(old, next *inUse, gone *Gone) {
	var left []uint32
	for _, slot := range old.slots {
		if !slices.Contains(next.slots, slot) {
			left = append(left, slot)
			if gone.reals == nil {
				gone.reals = map[uint32]bool{}
			}
			gone.reals[slot] = true
		}
	}
	b.release(left)
}

// mapping writes the frontends of the next state, and deletes those that it does not
// have.
func (b *Balancer) mapping(next, old *inUse, gone *Gone) error {
	var errs []error
	m := b.maps[bpf.FairleadMapFlFrontends]
	for i, at := range next.Frontends {
		key, value := next.frontend(i, at)
		if err := m.Put(key, value); err != nil {
			errs = append(errs, fmt.Errorf("add frontend %s to service %s: %w", at, next.Name, err))
		}
	}
	for i, at := range old.Frontends {
		if slices.Contains(next.Frontends, at) && next.UDP == old.UDP {
			continue
		}
		if gone.frontends == nil {
			gone.frontends = map[frontendOf]bool{}
		}
		gone.frontends[frontendOf{old.UDP, at}] = true
		key, _ := old.frontend(i, at)
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("remove frontend %s from service %s: %w", at, old.Name, err))
		}
	}
	return errors.Join(errs...)
}

// frontend returns the i-th frontend in the programs' form.
func (h *inUse) frontend(i int, at netip.AddrPort) (bpf.FairleadFrontendKey, bpf.FairleadFrontend) {
	return bpf.FairleadFrontendKey{Host: Address(at.Addr()), Port: swap(at.Port()),
			Class: uint16(ClassOf(at.Addr().Is4(), h.UDP))},
		bpf.FairleadFrontend{Service: h.id, Chunk: h.ring.chunk, First: h.ring.first, Buckets: uint32(len(h.Ring)),
			Persistence: h.Persistence, Nth: uint16(i), Scheduling: h.Scheduling, Direct: h.Forward}
}

// note writes the service's name and scheduler, which a later process reads.
func (b *Balancer) note(h *inUse) {
	s := bpf.FairleadService{Scheduler: h.Scheduler, Gue: swap(h.GUE)}
	copy(s.Name[:len(s.Name)-1], h.Name)
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&s)), serviceSize)
	off := int(unsafe.Offsetof(s.Scheduler)) // keeps the round robin counter before it
	store(b.services, int64(int(h.id)*serviceSize+off), raw[off:])
}

// WriteServed writes for the programs whether there are services, and whether some
// have real servers on other hosts.
func (b *Balancer) WriteServed() error {
	var flags uint32
	for _, h := range b.inUse {
		flags |= servedAny
		if slices.ContainsFunc(h.Reals, func(r Real) bool { return r.Flags&RealRemote != 0 }) {
			flags |= servedRemote
			break
		}
	}
	if err := b.maps[bpf.FairleadMapFlServed].Put(uint32(0), flags); err != nil {
		return fmt.Errorf("write whether services exist: %w", err)
	}
	return nil
}

func (b *Balancer) readReal(slot uint32) bpf.FairleadReal {
	var r bpf.FairleadReal
	load(b.reals, int64(slot)*int64(realSize), unsafe.Slice((*byte)(unsafe.Pointer(&r)), realSize))
	return r
}

// writeReal writes an entry. The generation, which makes it valid, is written last.
func (b *Balancer) writeReal(slot uint32, r bpf.FairleadReal) {
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&r)), realSize)
	off, generation := int64(slot)*int64(realSize), unsafe.Offsetof(r.Generation)
	if r.Generation == 0 {
		store(b.reals, off+int64(generation), native(0))
	}
	store(b.reals, off, raw[:generation])
	store(b.reals, off+int64(generation)+4, raw[generation+4:])
	store(b.reals, off+int64(generation), native(r.Generation))
}
