package ebpf

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Attached reports whether every program that was attached still is. Other programs can
// detach one (BPF_LINK_DETACH), and the kernel sends no notification. It costs one
// system call per program.
func (p *Datapath) Attached() bool {
	var pinner runtime.Pinner
	defer pinner.Unpin()
	r := new(infoRequest)
	pinner.Pin(r)
	for _, l := range p.attached.byName {
		if !r.living(l) {
			return false
		}
	}
	return true
}

// infoRequest is a request for the first fields of struct bpf_link_info, which are the
// same for programs on links and on cgroups.
type infoRequest struct {
	attr struct {
		fd, length uint32
		info       uint64
	}
	info struct {
		kind, id, program, _ uint32
		// target begins with a __u32 ifindex, or is a __u64 cgroup_id. It is 0 if the
		// program is detached, or if its link or cgroup is gone.
		target uint64
	}
}

// living reports whether a link's program is still attached.
func living(l link.Link) bool {
	var pinner runtime.Pinner
	defer pinner.Unpin()
	r := new(infoRequest)
	pinner.Pin(r)
	return r.living(l)
}

// living does the same with a request that does not move in memory.
func (r *infoRequest) living(l link.Link) bool {
	raw, ok := l.(interface{ FD() int })
	if !ok {
		return false
	}
	r.info.target = 0
	r.attr.fd, r.attr.length = uint32(raw.FD()), uint32(unsafe.Sizeof(r.info))
	r.attr.info = uint64(uintptr(unsafe.Pointer(&r.info)))
	_, _, errno := unix.RawSyscall(unix.SYS_BPF, unix.BPF_OBJ_GET_INFO_BY_FD, uintptr(unsafe.Pointer(&r.attr)),
		unsafe.Sizeof(r.attr))
	runtime.KeepAlive(l)
	switch {
	case errno != 0:
		return false
	case r.info.kind == unix.BPF_LINK_TYPE_TCX || r.info.kind == unix.BPF_LINK_TYPE_XDP:
		return uint32(r.info.target) != 0
	}
	return r.info.target != 0
}

// Sound returns the interfaces that have the program and will keep it: it is attached,
// and pinned if the data path is pinned. The calling thread must be in the host's
// network namespace.
func (p *Datapath) Sound(program string) (map[int]bool, error) {
	if !p.pins().haveAll(p.maps) {
		return nil, nil
	}
	found, err := p.LinksOf(program)
	for ifindex := range found {
		if !p.attached.pinned(pinName(program, ifindex)) {
			delete(found, ifindex)
		}
	}
	return found, err
}

// sound is Sound for the attachment of that name.
func (p *Datapath) sound(name string) bool {
	l, ok := p.attached.byName[name]
	return ok && living(l) && p.attached.pinned(name) && p.pins().haveAll(p.maps)
}

// pins is the directory of the pins; empty if there are none.
type pins string

func (p *Datapath) pins() pins { return pins(p.opt.Pins) }

func (dir pins) mapOf(name string) string { return filepath.Join(string(dir), "maps", name) }

func (dir pins) link(name string) string { return filepath.Join(string(dir), "links", name) }

// dirs returns the directory and its parts.
func (dir pins) dirs() []string {
	if dir == "" {
		return nil
	}
	return []string{string(dir), filepath.Join(string(dir), "maps"), filepath.Join(string(dir), "links")}
}

// haveAll reports whether every map that belongs to the host is pinned.
func (dir pins) haveAll(maps map[string]*ebpf.Map) bool {
	if dir == "" {
		return true
	}
	for name := range maps {
		if shared(name) && unix.Access(dir.mapOf(name), unix.F_OK) != nil {
			return false
		}
	}
	return true
}

// Repin pins the maps again whose pins another program removed.
func (p *Datapath) Repin() error {
	if p.pins().haveAll(p.maps) {
		return nil
	}
	for _, dir := range p.pins().dirs() {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("create the directory of pins: %w", err)
		}
	}
	for name, m := range p.maps {
		if !shared(name) || unix.Access(p.pins().mapOf(name), unix.F_OK) == nil {
			continue
		}
		if err := errors.Join(m.Unpin(), m.Pin(p.pins().mapOf(name))); err != nil {
			return fmt.Errorf("pin map %s: %w", name, err)
		}
	}
	return nil
}

// Restore writes the entries again that another program has overwritten.
func (t *Table) Restore() { t.hurt(true) }

// Has reports whether the entry is in the table.
func (t *Table) Has(l Mapping) bool {
	slot, ok := t.find(&l)
	if !ok {
		return false
	}
	have := t.slots[slot]
	have.Next, l.Next = 0, 0
	return have == l
}

// Hurt returns the entries that differ from what was written, and those to which not all
// of their ports refer. The memory is shared with the programs, so it costs no system
// call.
func (t *Table) Hurt() []Mapping { return t.hurt(false) }

func (t *Table) hurt(restore bool) []Mapping {
	var hurt map[uint32]bool
	note := func(slot uint32) {
		if hurt == nil {
			hurt = map[uint32]bool{}
		}
		hurt[slot] = true
	}
	for slot, l := range t.slots {
		b := unsafe.Slice((*byte)(unsafe.Pointer(&l)), mappingSize)
		if off := int64(slot) * int64(mappingSize); !stored(t.mappings, off, b) {
			if restore {
				store(t.mappings, off, b)
			}
			note(slot)
		}
	}
	for at, slot := range t.heads {
		if off := int64(at) * portSize; !stored(t.ports, off, native(slot)) {
			if restore {
				store(t.ports, off, native(slot))
			}
			note(slot)
		}
	}
	var mappings []Mapping
	for slot := range hurt {
		l := t.slots[slot]
		l.Next = 0
		mappings = append(mappings, l)
	}
	return mappings
}

func stored(m *ebpf.Memory, off int64, want []byte) bool {
	var buf [256]byte
	have := buf[:len(want)]
	_, err := m.ReadAt(have, off)
	return err == nil && bytes.Equal(have, want)
}

// pinTimes are the modification times of the directories of pins.
type pinTimes [3]unix.Timespec

// Pinned reports whether all pins exist. It checks each pin only if a directory has
// changed since the last call.
func (p *Datapath) Pinned() bool {
	var now pinTimes
	for i, dir := range p.pins().dirs() {
		var st unix.Stat_t
		if unix.Stat(dir, &st) != nil {
			return false
		}
		now[i] = st.Mtim
	}
	if now == p.pinsSeen {
		return true
	}
	for name := range p.attached.byName {
		if !p.attached.pinned(name) {
			return false
		}
	}
	if !p.pins().haveAll(p.maps) {
		return false
	}
	p.pinsSeen = now
	return true
}
