package ebpf

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// spare are the loaded programs of benches that have ended, with empty maps. The kernel needs about a second of CPU
// time to verify the programs, which is most of what a test needs.
var spare struct {
	sync.Mutex
	all []*ebpf.Collection
}

// takeSpare returns spare programs, or loads them.
func takeSpare(tb testing.TB) *ebpf.Collection {
	tb.Helper()
	spare.Lock()
	defer spare.Unlock()
	if n := len(spare.all); n > 0 {
		c := spare.all[n-1]
		spare.all = spare.all[:n-1]
		return c
	}
	return loadBench(tb, forDriversToo)
}

// giveSpare empties the maps of programs that no bench uses any more.
func giveSpare(tb testing.TB, c *ebpf.Collection) {
	tb.Helper()
	for name, m := range c.Maps {
		if err := empty(m); err != nil {
			tb.Errorf("empty map %s: %v", name, err)
		}
	}
	spare.Lock()
	defer spare.Unlock()
	spare.all = append(spare.all, c)
}

// clone returns programs and maps that can be closed without those of the collection.
func clone(tb testing.TB, c *ebpf.Collection) *ebpf.Collection {
	tb.Helper()
	to := &ebpf.Collection{Programs: map[string]*ebpf.Program{}, Maps: map[string]*ebpf.Map{}}
	var errs []error
	var err error
	for name, prog := range c.Programs {
		to.Programs[name], err = prog.Clone()
		errs = append(errs, err)
	}
	for name, m := range c.Maps {
		to.Maps[name], err = m.Clone()
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
	return to
}

// empty gives a map the contents of a new one.
func empty(m *ebpf.Map) error {
	switch m.Type() {
	case ebpf.Hash, ebpf.LRUHash:
		return emptyHash(m)
	case ebpf.ArrayOfMaps:
		return emptyHash(m) // a ring is deleted like the entry of a hash table
	case ebpf.PerCPUArray:
		return zeroPerCPU(m)
	case ebpf.Array:
		return zero(m)
	case ebpf.SkStorage:
		return nil // sockets end with their bench
	}
	return fmt.Errorf("maps of type %s cannot be emptied", m.Type())
}

// emptyHash deletes all entries.
func emptyHash(m *ebpf.Map) error {
	keys, err := mapKeys(m)
	for _, key := range keys {
		if gone := m.Delete(key); !errors.Is(gone, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}

// mapKeys returns the keys of a map.
func mapKeys(m *ebpf.Map) (keys [][]byte, err error) {
	var key []byte
	for {
		var from any
		if key != nil {
			from = key
		}
		if key, err = m.NextKeyBytes(from); err != nil || key == nil {
			return keys, err
		}
		keys = append(keys, key)
	}
}

// zero overwrites an array, unless it contains constants.
func zero(m *ebpf.Map) error {
	if m.Flags()&unix.BPF_F_RDONLY_PROG != 0 {
		return nil
	}
	zeros := make([]byte, int(m.MaxEntries())*int(m.ValueSize()))
	if m.Flags()&unix.BPF_F_MMAPABLE == 0 {
		return m.Put(uint32(0), zeros) // these arrays have one entry
	}
	memory, err := m.Memory()
	if err != nil {
		return err
	}
	_, err = memory.WriteAt(zeros, 0)
	return err
}

// zeroPerCPU overwrites an array of each CPU.
func zeroPerCPU(m *ebpf.Map) error {
	keys := make([]uint32, m.MaxEntries())
	values := make([][]byte, len(keys)*ebpf.MustPossibleCPU())
	for i := range keys {
		keys[i] = uint32(i)
	}
	none := make([]byte, m.ValueSize())
	for i := range values {
		values[i] = none
	}
	_, err := m.BatchUpdate(keys, values, nil)
	return err
}
