package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
)

// The sizes of rings, as in bpf/include/services.h.
const (
	chunkWords   = 131072
	maxChunks    = 256
	wordSize     = 8
	slotsPerWord = 4
)

// MaxBuckets is the length of the longest ring.
const MaxBuckets = chunkWords * slotsPerWord

// ringRest is how long the memory of a removed ring is not reused, because a program may
// still be reading it.
const ringRest = time.Second

// rings manages the memory of rings. It consists of chunks; a new one is created when
// the existing ones have no room. Inserting a chunk makes the kernel wait for all
// running programs, so it is not done for each ring.
type rings struct {
	outer  *ebpf.Map
	chunks []*chunk
	// left are the removed rings.
	left []leftRing
}

type chunk struct {
	m   *ebpf.Map
	mem *ebpf.Memory
	// taken are the rings in the chunk, in order.
	taken []region
}

// region is the position of a ring. It has no words if there is no ring.
type region struct{ chunk, first, words uint32 }

type leftRing struct {
	region
	since time.Time
}

// put writes a ring where there is room.
func (r *rings) put(slots []uint16) (region, error) {
	if len(slots) == 0 {
		return region{}, nil
	}
	if len(slots) > MaxBuckets {
		return region{}, fmt.Errorf("a ring of %d buckets: want at most %d", len(slots), MaxBuckets)
	}
	at, err := r.take(uint32(len(slots)+slotsPerWord-1) / slotsPerWord)
	if err != nil {
		return at, err
	}
	store(r.chunks[at.chunk].mem, int64(at.first)*wordSize, ringBytes(slots, at.words))
	return at, nil
}

// ringBytes encodes slots as the programs read them: four per word, the first in the
// lowest bits.
func ringBytes(slots []uint16, words uint32) []byte {
	raw := make([]byte, words*wordSize)
	for i := range words {
		var word uint64
		for j, slot := range slots[i*slotsPerWord : min(int(i+1)*slotsPerWord, len(slots))] {
			word |= uint64(slot) << (16 * j)
		}
		binary.NativeEndian.PutUint64(raw[i*wordSize:], word)
	}
	return raw
}

// get reads a ring with the given number of buckets.
func (r *rings) get(at region, buckets int) []uint16 {
	if at.words == 0 || int(at.chunk) >= len(r.chunks) {
		return nil
	}
	raw := make([]byte, at.words*wordSize)
	load(r.chunks[at.chunk].mem, int64(at.first)*wordSize, raw)
	slots := make([]uint16, buckets)
	for i := range slots {
		slots[i] = uint16(binary.NativeEndian.Uint64(raw[i/slotsPerWord*wordSize:]) >> (16 * (i % slotsPerWord)))
	}
	return slots
}

// retire marks a ring as removed.
func (r *rings) retire(at region) {
	if at.words > 0 {
		r.left = append(r.left, leftRing{at, time.Now()})
	}
}

// sweep frees the rings that were removed some time ago.
func (r *rings) sweep() {
	n := 0
	for n < len(r.left) && time.Since(r.left[n].since) > ringRest {
		c := r.chunks[r.left[n].chunk]
		if i, ok := slices.BinarySearchFunc(c.taken, r.left[n].region, byPlace); ok {
			c.taken = slices.Delete(c.taken, i, i+1)
		}
		n++
	}
	r.left = slices.Delete(r.left, 0, n)
}

func byPlace(a, b region) int { return int(a.first) - int(b.first) }

// take reserves room for the given number of words.
func (r *rings) take(words uint32) (region, error) {
	r.sweep()
	for i, c := range r.chunks {
		if at, ok := c.fit(uint32(i), words); ok {
			return at, nil
		}
	}
	if err := r.grow(); err != nil {
		return region{}, err
	}
	last := uint32(len(r.chunks) - 1)
	at, _ := r.chunks[last].fit(last, words)
	return at, nil
}

// fit reserves the first gap that is large enough.
func (c *chunk) fit(number, words uint32) (region, bool) {
	first := uint32(0)
	for i, t := range c.taken {
		if t.first-first >= words {
			at := region{number, first, words}
			c.taken = slices.Insert(c.taken, i, at)
			return at, true
		}
		first = t.first + t.words
	}
	if chunkWords-first < words {
		return region{}, false
	}
	at := region{number, first, words}
	c.taken = append(c.taken, at)
	return at, true
}

// grow inserts another chunk.
func (r *rings) grow() error {
	if len(r.chunks) >= maxChunks {
		return fmt.Errorf("%w: its rings fill %d MiB", ErrFull, maxChunks*chunkWords*wordSize>>20)
	}
	spec, err := bpf.Fairlead()
	if err != nil {
		return err
	}
	m, err := ebpf.NewMap(spec.Maps[bpf.FairleadMapFlRings].InnerMap)
	if err != nil {
		return fmt.Errorf("make room for the rings of services: %w", err)
	}
	if err := r.outer.Put(uint32(len(r.chunks)), m); err != nil {
		return errors.Join(fmt.Errorf("insert a chunk for the rings of services: %w", err), m.Close())
	}
	return r.add(m)
}

func (r *rings) add(m *ebpf.Map) error {
	mem, err := m.Memory()
	if err != nil {
		return errors.Join(fmt.Errorf("map the rings of services: %w", err), m.Close())
	}
	r.chunks = append(r.chunks, &chunk{m: m, mem: mem})
	return nil
}

// open opens the existing chunks.
func (r *rings) open() error {
	for i := range uint32(maxChunks) {
		var id ebpf.MapID
		err := r.outer.Lookup(i, &id)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the rings of services: %w", err)
		}
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return fmt.Errorf("open the rings of services: %w", err)
		}
		if err := r.add(m); err != nil {
			return err
		}
	}
	return nil
}

// hold records an existing ring.
func (r *rings) hold(at region) {
	if int(at.chunk) < len(r.chunks) && at.words > 0 {
		c := r.chunks[at.chunk]
		i, _ := slices.BinarySearchFunc(c.taken, at, byPlace)
		c.taken = slices.Insert(c.taken, i, at)
	}
}

func (r *rings) close() error {
	var errs []error
	for _, c := range r.chunks {
		errs = append(errs, c.m.Close())
	}
	r.chunks = nil
	return errors.Join(errs...)
}
