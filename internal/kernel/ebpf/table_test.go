package ebpf

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
)

// tableMaps creates the maps of an empty table, without any program.
func tableMaps(t *testing.T) map[string]*ebpf.Map {
	t.Helper()
	spec, err := bpf.LoadFairlead()
	if err != nil {
		t.Fatal(err)
	}
	maps := map[string]*ebpf.Map{}
	t.Cleanup(func() { closeAll(maps) })
	for _, name := range []string{bpf.FairleadMapFlPorts, bpf.FairleadMapFlMappings, bpf.FairleadMapFlTotals} {
		if maps[name], err = ebpf.NewMap(spec.Maps[name]); err != nil {
			t.Fatal(err)
		}
	}
	return maps
}

func newTable(t *testing.T) (*Table, map[string]*ebpf.Map) {
	t.Helper()
	maps := tableMaps(t)
	table, err := openTable(maps)
	if err != nil {
		t.Fatal(err)
	}
	return table, maps
}

// lookUp finds an entry as the programs do: in the maps' memory, not in the table's
// copy.
func lookUp(t *testing.T, table *Table, plane uint8, host bpf.FairleadAddress, port uint16) (Mapping, bool) {
	t.Helper()
	head := make([]byte, 4)
	if _, err := table.ports.ReadAt(head, (int64(plane)*portsPerClass+int64(port))*portSize); err != nil {
		t.Fatal(err)
	}
	slot := binary.NativeEndian.Uint32(head)
	for range maxChain {
		if slot == 0 {
			break
		}
		var l Mapping
		if _, err := table.mappings.ReadAt(unsafe.Slice((*byte)(unsafe.Pointer(&l)), mappingSize),
			int64(slot)*int64(mappingSize)); err != nil {
			t.Fatal(err)
		}
		if slot = l.Next; holds(l, plane, host, port) {
			l.Next = 0
			return l, true
		}
	}
	return Mapping{}, false
}

func holds(l Mapping, plane uint8, host bpf.FairleadAddress, port uint16) bool {
	return l.Class == plane && port >= l.First && port <= l.Last && (l.Flags&MappingAny != 0 || l.Host == host)
}

// modelTable is a simple model of a table: the entries in the order in which they
// were added. A lookup finds the first entry that matches.
type modelTable []Mapping

func (m modelTable) lookUp(plane uint8, host bpf.FairleadAddress, port uint16) (Mapping, bool) {
	for _, l := range m {
		if holds(l, plane, host, port) {
			return l, true
		}
	}
	return Mapping{}, false
}

// place returns the index of the entry for the same host address and ports, -1 if
// there is none.
func (m modelTable) place(l Mapping) int {
	return slices.IndexFunc(m, func(o Mapping) bool {
		return o.Class == l.Class && o.Host == l.Host && o.First == l.First && o.Last == l.Last
	})
}

// modelPorts is the highest port that the test uses: small, so that ranges overlap.
const modelPorts = 40

var modelHosts = []netip.Addr{hostV4, otherV4, gateV4, webV4, appV4, anyV4}

// randomMapping returns an entry that may already be in the model.
func randomMapping(r *rand.Rand) Mapping {
	host := modelHosts[r.IntN(len(modelHosts))]
	l := Mapping{Host: Address(host), To: Address(webV4), Ifindex: r.Uint32(), First: uint16(1 + r.IntN(modelPorts)),
		Class: uint8(r.IntN(4))}
	l.Last = min(modelPorts, l.First+uint16(r.IntN(12)*r.IntN(2)))
	if host.IsUnspecified() {
		l.Flags = MappingAny
	}
	return l
}

// step makes a random change of the model, and returns it for the table. Most
// deletions and changes are of entries that exist.
func (m *modelTable) step(r *rand.Rand) Change {
	l := randomMapping(r)
	if len(*m) > 0 && r.IntN(4) > 0 {
		l = (*m)[r.IntN(len(*m))]
		l.Ifindex = r.Uint32()
	}
	at := m.place(l)
	switch {
	case r.IntN(2) == 0 || len(*m) > 60:
		if at >= 0 {
			*m = slices.Delete(*m, at, at+1)
		}
		return Change{Old: &l}
	case at >= 0:
		old := (*m)[at]
		(*m)[at] = l
		return Change{Old: &old, New: &l}
	default:
		*m = append(*m, l)
		return Change{New: &l}
	}
}

// TestTableAgainstModel makes many random changes. After each it compares the model
// with the maps' memory, which the programs read.
func TestTableAgainstModel(t *testing.T) {
	table, maps := newTable(t)
	const seed = 4711
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var model modelTable
	for n := range 10000 {
		var changes []Change
		for range 1 + r.IntN(3) {
			changes = append(changes, model.step(r))
		}
		if err := table.Apply(changes); err != nil {
			t.Fatal(err)
		}
		compare(t, table, model, uint8(r.IntN(4)))
		if n%100 == 0 {
			again, err := openTable(maps)
			if err != nil {
				t.Fatal(err)
			}
			sameMappings(t, again, model)
			table = again
		}
		if t.Failed() {
			t.Fatalf("after step %d", n)
		}
	}
}

// compare compares every lookup of a class.
func compare(t *testing.T, table *Table, model modelTable, plane uint8) {
	t.Helper()
	for _, host := range modelHosts {
		for port := range uint16(modelPorts + 2) {
			got, found := lookUp(t, table, plane, Address(host), port)
			if want, there := model.lookUp(plane, Address(host), port); found != there || got != want {
				t.Errorf("class %d %s port %d: found %t %v, want %t %v", plane, host, port, found, got, there, want)
			}
		}
	}
}

// sameMappings checks that the table lists the model's entries.
func sameMappings(t *testing.T, table *Table, model modelTable) {
	t.Helper()
	all := table.Mappings()
	for _, l := range all {
		if at := model.place(l); at < 0 || model[at] != l {
			t.Errorf("the table lists %v", l)
		}
	}
	if len(all) != len(model) {
		t.Errorf("the table lists %d entries, want %d", len(all), len(model))
	}
}

// TestEmptiedTable checks that no entry and no head is left once all are deleted.
func TestEmptiedTable(t *testing.T) {
	table, maps := newTable(t)
	r := rand.New(rand.NewPCG(1, 0))
	var model modelTable
	for range 500 {
		if c := model.step(r); table.Apply([]Change{c}) != nil {
			t.Fatal("a change does not fit")
		}
	}
	for _, l := range model {
		if err := table.Apply([]Change{{Old: &l}, {Old: &l}}); err != nil {
			t.Fatal(err)
		}
	}
	again, err := openTable(maps)
	if err != nil || !table.empty() || !again.empty() || len(table.heads) != 0 {
		t.Errorf("left: %d entries, %d heads, and read again %d entries (%v)", len(table.slots), len(table.heads),
			len(again.slots), err)
	}
}

// hostAddress returns one of many.
func hostAddress(n int) bpf.FairleadAddress {
	return Address(netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)}))
}

// TestLongestChain publishes one port on as many host addresses as the table allows,
// and finds all of them. One more is an error.
func TestLongestChain(t *testing.T) {
	table, _ := newTable(t)
	var changes []Change
	for n := range maxChain {
		changes = append(changes, Change{New: &Mapping{Host: hostAddress(n), First: 80, Last: 80}})
	}
	if err := table.Apply(changes); err != nil {
		t.Fatal(err)
	}
	for n := range maxChain {
		if _, ok := lookUp(t, table, 0, hostAddress(n), 80); !ok {
			t.Errorf("the entry of address %d is not found", n)
		}
	}
	one := Mapping{Host: hostAddress(maxChain), First: 79, Last: 80}
	if err := table.Apply([]Change{{New: &one}}); err == nil ||
		!strings.Contains(err.Error(), "port 80 is published on more than 64 host addresses") {
		t.Errorf("add one more address: %v", err)
	}
	if _, ok := lookUp(t, table, 0, one.Host, 79); ok {
		t.Error("the refused change has left an entry")
	}
}

// TestFullTable fills the table to its last entry. One more is an error.
func TestFullTable(t *testing.T) {
	table, _ := newTable(t)
	var changes []Change
	for port := range maxMappings - 1 {
		changes = append(changes, Change{New: &Mapping{Flags: MappingAny, First: uint16(port + 1),
			Last: uint16(port + 1)}})
	}
	if err := table.Apply(changes); err != nil {
		t.Fatal(err)
	}
	if err := table.Apply([]Change{{New: &Mapping{Flags: MappingAny, Class: 1, First: 1, Last: 1}}}); !errors.Is(err,
		ErrFull) {
		t.Errorf("add one more entry: %v, want %v", err, ErrFull)
	}
	if _, ok := lookUp(t, table, 0, hostAddress(0), 65535); !ok {
		t.Error("the last entry is not found")
	}
}

// TestFreedSlotsRest checks that the slot of a removed entry is not used again before
// many others were: a program may still be reading it. In a full table it is used at once.
func TestFreedSlotsRest(t *testing.T) {
	for _, full := range []bool{false, true} {
		table, _ := newTable(t)
		if full {
			table.used = maxMappings - 2
		}
		entry := func(port uint16) *Mapping {
			return &Mapping{First: port, Last: port, ToFirst: port, Flags: MappingAny, Class: ClassOf(true, false)}
		}
		replace := func(old, next *Mapping) uint32 {
			t.Helper()
			if err := table.Apply([]Change{{Old: old}}); err != nil {
				t.Fatal(err)
			}
			if err := table.Apply([]Change{{New: next}}); err != nil {
				t.Fatal(err)
			}
			return table.heads[index(next, int(next.First))]
		}
		if err := table.Apply([]Change{{New: entry(1)}}); err != nil {
			t.Fatal(err)
		}
		used := map[uint32]bool{table.heads[index(entry(1), 1)]: true}
		for port := uint16(2); port < restingSlots; port++ {
			slot := replace(entry(port-1), entry(port))
			if used[slot] != full {
				t.Fatalf("full %v: entry %d gets the slot %d, which had another entry: %v", full, port, slot, used[slot])
			}
			used[slot] = true
		}
	}
}
