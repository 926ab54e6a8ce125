package ebpf

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
)

// ownService returns a service whose only real server is the host itself.
func (b *bench) ownService(udp, v4 bool, forward uint8) Service {
	s := b.served(udp, v4)
	at := netip.AddrPortFrom(hostV6, 8000)
	if v4 {
		at = netip.AddrPortFrom(hostV4, 8000)
	}
	if s.Forward = forward; forward != ForwardNAT {
		at = netip.AddrPortFrom(at.Addr(), 0)
	}
	s.Ring, s.Reals = []uint16{0}, []Real{{At: at, Weight: 1, Flags: RealLocal}}
	return s
}

// pass runs a program, which must leave the frame to the kernel, and returns the frame
// after it.
func (b *bench) pass(t *testing.T, what, program string, frame []byte, ctx skb) []byte {
	t.Helper()
	act, out := b.run(t, program, frame, ctx, 0)
	if act != untouched {
		t.Fatalf("%s: the program returns %d, want %d", what, act, untouched)
	}
	return out
}

// TestLocalRealEgress checks that packets for a real server that is the host itself are
// translated and left to the kernel. The host's own replies are translated too;
// forwarded packets and packets without a flow are not.
func TestLocalRealEgress(t *testing.T) {
	b := newBenchWith(t, func(prog *ebpf.ProgramSpec) bool { return forLinks(prog) || forEgress(prog) })
	b.routers(t)
	in, out, through := skb{Ifindex: uint32(b.up)}, skb{Ifindex: uint32(b.up)},
		skb{Ifindex: uint32(b.up), Ingress: uint32(b.web)}
	eachSort(t, func(udp, v4 bool, client netip.AddrPort) {
		s := b.ownService(udp, v4, ForwardNAT)
		b.hold(t, s)
		own := s.Reals[0].At
		call := first(udp, client, s.Frontends[0])
		called := b.pass(t, "a call", Uplink, call.frame(), in)
		if src, dst := ends(called); src != client || dst != own {
			t.Errorf("the packet goes from %s to %s, want from %s to %s", src, dst, client, own)
		}
		answer := packet{src: own, dst: client, udp: udp, flags: syn | ack, payload: make([]byte, 40)}
		if src, dst := ends(b.pass(t, "an answer", LocalRealEgress, answer.frame(), out)); src != s.Frontends[0] ||
			dst != client {
			t.Errorf("the answer goes from %s to %s, want from %s to %s", src, dst, s.Frontends[0], client)
		}
		forwarded := b.pass(t, "a forwarded packet", LocalRealEgress, answer.frame(), through)
		if !bytes.Equal(forwarded, answer.frame()) {
			t.Errorf("a forwarded packet becomes\n%x", forwarded)
		}
		other := packet{src: own, dst: netip.AddrPortFrom(client.Addr(), client.Port()+1), udp: udp,
			payload: make([]byte, 40)}
		left := b.pass(t, "a packet to another client", LocalRealEgress, other.frame(), out)
		if !bytes.Equal(left, other.frame()) {
			t.Errorf("a packet without a flow becomes\n%x", left)
		}
		b.errorsToClient(t, call, packet{src: client, dst: own, udp: udp, payload: call.payload}, in)
		if c := b.counted(t, "web")[own]; c.Flows != 1 || c.Packets != [2]uint64{1, 1} || c.Drops != [2]uint64{} {
			t.Errorf("the host's counters are %+v, want one flow with one packet in each direction", c)
		}
		b.unserve(t, "web")
		b.asTheyAre(t, udp, v4, client)
	})
}

// errorsToClient checks the translation of the errors that the host and a router send
// about a flow. The flow's first packet is given as the client and as the host saw it.
func (b *bench) errorsToClient(t *testing.T, call, seen packet, on skb) {
	t.Helper()
	translated := b.pass(t, "the host's error", LocalRealEgress, icmpError(seen.dst.Addr(), seen.frame(), 68), on)
	v := packetView(translated)
	if from, _ := v.addresses(translated); from != call.dst.Addr() {
		t.Errorf("the host's error comes from %s, want from %s", from, call.dst.Addr())
	}
	if src, dst := v.quote.ends(translated); src != call.src || dst != call.dst {
		t.Errorf("the host's error quotes %s to %s, want %s to %s", src, dst, call.src, call.dst)
	}
	translated = b.pass(t, "a router's error", Uplink, icmpError(router(call), call.answer().frame(), 68), on)
	v = packetView(translated)
	if _, to := v.addresses(translated); to != seen.dst.Addr() {
		t.Errorf("the router's error goes to %s, want to %s", to, seen.dst.Addr())
	}
	if src, dst := v.quote.ends(translated); src != seen.dst || dst != seen.src {
		t.Errorf("the router's error quotes %s to %s, want %s to %s", src, dst, seen.dst, seen.src)
	}
}

// asTheyAre checks that direct forwarding and tunnels do not change packets whose real
// server is the host itself.
func (b *bench) asTheyAre(t *testing.T, udp, v4 bool, client netip.AddrPort) {
	t.Helper()
	for _, forward := range []uint8{ForwardDirect, ForwardTunnel} {
		s := b.ownService(udp, v4, forward)
		b.hold(t, s)
		frame := first(udp, client, s.Frontends[0]).frame()
		if got := b.pass(t, "a call", Uplink, frame, skb{Ifindex: uint32(b.up)}); !bytes.Equal(got, frame) {
			t.Errorf("the packet\n%x becomes\n%x", frame, got)
		}
		b.unserve(t, "web")
	}
}
