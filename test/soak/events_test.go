package soak_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fairlead/internal/kernel/bpf"
	"fairlead/test/place"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// events records the maps and links that the engines have pinned.
type events struct {
	t     *testing.T
	world *world
	// flows contains the maps that the eBPF programs fill. ports is the map that refers to every
	// entry of the table.
	flows map[string]*ebpf.Map
	ports *ebpf.Map
	// maps and links contain the names of all maps and links that were ever pinned.
	maps  map[ebpf.MapID]string
	links map[link.ID]string
	// answered contains the number of answered short connections at the last two samples.
	answered [2]int
}

func newEvents(t *testing.T, w *world) *events {
	t.Helper()
	s := &events{t: t, world: w, flows: map[string]*ebpf.Map{},
		maps: map[ebpf.MapID]string{}, links: map[link.ID]string{}}
	for _, name := range []string{bpf.FairleadMapFlFlowsTcp, bpf.FairleadMapFlFlowsUdp, bpf.FairleadMapFlAliases} {
		s.flows[name] = s.open(name)
	}
	s.ports = s.open(bpf.FairleadMapFlPorts)
	return s
}

// pins lists the pins of a kind. There is only one host.
func (s *events) pins(kind string) []string {
	s.t.Helper()
	all, err := filepath.Glob(filepath.Join(s.world.pinned(), "*", kind, "*"))
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

func (s *events) open(name string) *ebpf.Map {
	s.t.Helper()
	for _, pin := range s.pins("maps") {
		if filepath.Base(pin) == name {
			m, err := ebpf.LoadPinnedMap(pin, nil)
			if err != nil {
				s.t.Fatal(err)
			}
			return m
		}
	}
	s.t.Fatalf("the engine has pinned no map %s", name)
	return nil
}

// note records what is pinned now. Objects that disappear while it reads are skipped.
func (s *events) note() {
	s.t.Helper()
	for _, pin := range s.pins("maps") {
		if m, err := ebpf.LoadPinnedMap(pin, nil); err == nil {
			if info, err := m.Info(); err == nil {
				id, _ := info.ID()
				s.maps[id] = filepath.Base(pin)
			}
			m.Close()
		}
	}
	for _, pin := range s.pins("links") {
		if l, err := link.LoadPinnedLink(pin, nil); err == nil {
			if info, err := l.Info(); err == nil {
				s.links[info.ID] = filepath.Base(pin)
			}
			l.Close()
		}
	}
}

// sample counts the entries of the maps, and fails the test if there are more than the open
// conversations explain. UDP conversations are never closed: each counts for two cycles, which are
// as long as its timeout.
func (s *events) sample(talks []*talk, n *newcomers) map[string]int {
	s.t.Helper()
	s.note()
	counts := s.counts()
	answered := int(n.answered.Load())
	translated, recent := 0, answered-s.answered[0]
	s.answered = [2]int{s.answered[1], answered}
	for _, t := range talks {
		if t.translated {
			translated++
		}
	}
	for name, bound := range map[string]int{
		bpf.FairleadMapFlFlowsTcp: translated/len(protos) + newcomersMax,
		bpf.FairleadMapFlFlowsUdp: translated/len(protos) + newcomersMax + recent,
		bpf.FairleadMapFlAliases:  translated + newcomersMax + recent,
	} {
		if counts[name] > bound {
			s.t.Errorf("the map %s has %d entries, but the open conversations explain only %d", name, counts[name],
				bound)
		}
	}
	return counts
}

func (s *events) counts() map[string]int {
	s.t.Helper()
	counts := map[string]int{bpf.FairleadMapFlPorts: s.published()}
	for name, m := range s.flows {
		key := make([]byte, m.KeySize())
		value := make([]byte, m.ValueSize())
		all := m.Iterate()
		for all.Next(key, value) {
			counts[name]++
		}
		if err := all.Err(); err != nil {
			s.t.Errorf("count %s: %v", name, err)
		}
	}
	return counts
}

// published counts the ports that refer to an entry of the table.
func (s *events) published() (n int) {
	s.t.Helper()
	keys := make([]uint32, s.ports.MaxEntries())
	heads := make([]uint32, len(keys))
	var cursor ebpf.MapBatchCursor
	if _, err := s.ports.BatchLookup(&cursor, keys, heads, nil); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		s.t.Errorf("read the table of ports: %v", err)
	}
	for _, head := range heads {
		if head != 0 {
			n++
		}
	}
	return n
}

// nothingMapped fails the test unless the maps are empty. Only this process still has them open.
func (s *events) nothingMapped() {
	s.t.Helper()
	for name, n := range s.counts() {
		if n != 0 {
			s.t.Errorf("the map %s has %d entries at the end", name, n)
		}
	}
}

// nothingLeft fails the test if a pin, a link or a map is left. A map exists as long as a program
// that uses it, and a program as long as its link.
func (s *events) nothingLeft() {
	s.t.Helper()
	if left, err := os.ReadDir(s.world.pinned()); len(left) != 0 {
		s.t.Errorf("pins are left at the end: %v, %v", left, err)
	}
	for _, m := range s.flows {
		m.Close()
	}
	s.ports.Close()
	// The kernel frees maps and links asynchronously.
	for deadline := time.Now().Add(place.Timeout); ; time.Sleep(beat) {
		left := s.left()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			s.t.Errorf("left in the kernel at the end: %v", left)
			return
		}
	}
}

// left returns the names of the maps and links that still exist.
func (s *events) left() []string {
	var left []string
	for id, name := range s.maps {
		if m, err := ebpf.NewMapFromID(id); err == nil {
			m.Close()
			left = append(left, fmt.Sprintf("map %s (%d)", name, id))
		}
	}
	for id, name := range s.links {
		if l, err := link.NewFromID(id); err == nil {
			l.Close()
			left = append(left, fmt.Sprintf("link %s (%d)", name, id))
		}
	}
	return left
}
