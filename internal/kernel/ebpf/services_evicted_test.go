package ebpf

import (
	"net/netip"
	"testing"

	"fairlead/internal/kernel/bpf"
)

// TestEvictedFlowsKeepTheirRealServer deletes the flows of open connections, as when their
// map is full, while the connections stay. The next packet of each goes to the same real
// server, from the same address, and the answer to the client. A SYN may go elsewhere.
func TestEvictedFlowsKeepTheirRealServer(t *testing.T) {
	b := newBench(t)
	eachSort(t, func(udp, v4 bool, client netip.AddrPort) {
		for _, flags := range []uint16{0, RealMasquerade} {
			s := b.served(udp, v4)
			for i := range s.Reals {
				s.Reals[i].Flags = flags
			}
			b.hold(t, s)
			for i := range uint16(4) {
				from := netip.AddrPortFrom(client.Addr(), 40000+i)
				call := packet{src: from, dst: s.Frontends[0], udp: udp, flags: syn, seq: 1000}
				seen := call
				seen.src, seen.dst = ends(b.mustMap(t, "a call", Uplink, b.up, call.frame()))
				answer := seen.answer()
				answer.flags, answer.seq, answer.ack = syn|ack, 7, 1001
				link := b.behind(seen.dst.Addr())
				b.mustMap(t, "an answer", Sandbox, link, answer.frame())
				call.flags, call.seq, call.ack = ack, 1001, 8
				b.mustMap(t, "an acknowledgement", Uplink, b.up, call.frame())
				b.evict(t)
				for _, last := range []uint8{ack, fin | ack} {
					call.flags = last
					src, dst := ends(b.mustMap(t, "a packet after the eviction", Uplink, b.up, call.frame()))
					if src != seen.src || dst != seen.dst {
						t.Errorf("after the eviction a packet goes from %s to %s, want from %s to %s", src, dst, seen.src, seen.dst)
					}
					src, dst = ends(b.mustMap(t, "an answer after the eviction", Sandbox, link, seen.answer().frame()))
					if src != s.Frontends[0] || dst != from {
						t.Errorf("the answer goes from %s to %s, want from %s to %s", src, dst, s.Frontends[0], from)
					}
				}
				b.forget(t)
			}
			b.unserve(t, "web")
		}
	})
}

// evict deletes all open flows, and nothing that belongs to them.
func (b *bench) evict(t *testing.T) {
	t.Helper()
	for _, f := range b.flows(t) {
		m := b.maps[bpf.FairleadMapFlFlowsTcp]
		if f.UDP {
			m = b.maps[bpf.FairleadMapFlFlowsUdp]
		}
		if err := m.Delete(f.key); err != nil {
			t.Fatal(err)
		}
	}
}
