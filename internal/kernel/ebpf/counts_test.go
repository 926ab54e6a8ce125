package ebpf

import (
	"testing"

	"fairlead/internal/kernel/bpf"
)

// countsOf returns the counters of the only mapping of a protocol and port.
func (b *bench) countsOf(t *testing.T, udp bool, port uint16) Counted {
	t.Helper()
	all, err := b.Table().Counts(b.Flows())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.First == port && c.Class == ClassOf(true, udp) {
			return c
		}
	}
	t.Fatalf("port %d is not counted", port)
	return Counted{}
}

// TestCounts checks that each mapping counts its own packets only.
func TestCounts(t *testing.T) {
	b := newBench(t)
	web, dns := b.mapping(false, hostV4, 80, 80, 80, 0), b.mapping(true, hostV4, 53, 53, 53, 0)
	b.publish(t, web, dns)
	p := first(true, client4, ap("192.0.2.1:53"))
	size := uint64(len(p.frame()))
	b.turn(t, p)
	b.turn(t, p)
	want := Counts{Packets: [2]uint64{2, 2}, Bytes: [2]uint64{2 * size, 2 * size}, Flows: 1}
	if c := b.countsOf(t, true, 53); c.Counts != want || c.Live != 1 {
		t.Errorf("counted %+v and %d live, want %+v and 1", c.Counts, c.Live, want)
	}
	if c := b.countsOf(t, false, 80); c.Counts != (Counts{}) || c.Live != 0 {
		t.Errorf("counted %+v of a mapping without packets", c)
	}
	packets, bytes := b.Table().Translated()
	if packets != 4 || bytes != 4*size {
		t.Errorf("translated %d packets of %d bytes, want 4 of %d", packets, bytes, 4*size)
	}
}

// TestCountsLast checks that a mapping keeps its counters when it changes, and that
// they are deleted together with it.
func TestCountsLast(t *testing.T) {
	b := newBench(t)
	dns := b.mapping(true, hostV4, 53, 53, 53, 0)
	b.publish(t, dns)
	p := first(true, client4, ap("192.0.2.1:53"))
	b.turn(t, p)
	inUse := dns
	inUse.Flags |= MappingReserved
	if err := b.table.Apply([]Change{{Old: &dns, New: &inUse}}); err != nil {
		t.Fatal(err)
	}
	b.turn(t, p)
	if c := b.countsOf(t, true, 53); c.Packets != [2]uint64{2, 2} || c.Flows != 1 || c.Live != 1 {
		t.Errorf("after a change: %+v", c)
	}
	if err := b.table.Apply([]Change{{Old: &inUse}}); err != nil {
		t.Fatal(err)
	}
	b.publish(t, dns, b.mapping(true, hostV4, 54, 54, 54, 0), b.mapping(true, hostV4, 55, 55, 55, 0))
	for _, port := range []uint16{53, 54, 55} {
		if c := b.countsOf(t, true, port); c.Counts != (Counts{}) {
			t.Errorf("port %d begins with the counters %+v, want zeros", port, c.Counts)
		}
	}
}

// TestStaleFlowsAreNotLive checks that a flow that was silent for longer than its
// timeout does not count as live.
func TestStaleFlowsAreNotLive(t *testing.T) {
	b := newBench(t)
	b.publish(t, b.mapping(true, hostV4, 53, 53, 53, 0))
	b.turn(t, first(true, client4, ap("192.0.2.1:53")))
	b.alter(t, b.flows(t)[0], func(f *bpf.FairleadFlow) { f.Seen -= uint64(udpAnswered) + 1e9 })
	if c := b.countsOf(t, true, 53); c.Live != 0 || c.Flows != 1 {
		t.Errorf("%d of %d flows count as live, want 0 of 1", c.Live, c.Flows)
	}
}

// TestBeyondTheCounters checks that mappings without counters are counted in slot 0, so
// that Translated includes them.
func TestBeyondTheCounters(t *testing.T) {
	b := newBench(t)
	b.table.used = maxCounted - 1
	b.publish(t, b.mapping(true, hostV4, 53, 53, 53, 0))
	b.turn(t, first(true, client4, ap("192.0.2.1:53")))
	all, err := b.Table().Counts(b.Flows())
	if err != nil || len(all) != 0 {
		t.Errorf("the counters are %+v (%v), want none", all, err)
	}
	if packets, _ := b.Table().Translated(); packets != 2 {
		t.Errorf("translated %d packets, want 2", packets)
	}
}
