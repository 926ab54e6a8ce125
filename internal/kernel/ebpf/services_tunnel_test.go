package ebpf

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
)

// remote returns a service with one real server on another host, which has the
// virtual address.
func (b *bench) remote(udp, v4 bool, forward uint8) Service {
	s := b.served(udp, v4)
	far, seen := farV6, hostV6
	if v4 {
		far, seen = farV4, hostV4
	}
	s.Forward, s.Ring = forward, []uint16{0}
	s.Reals = []Real{{At: netip.AddrPortFrom(far, 0), Weight: 1, Seen: seen, Ifindex: uint32(b.up), Flags: RealRemote}}
	if forward == ForwardTunnel {
		s.Reals[0].Flags |= RealTunnel
	}
	return s
}

// gue is the UDP port at which the tests' real servers receive GUE.
const gue = 6080

// outerSize returns the size in bytes of the outer IP header.
func outerSize(v4 bool) int {
	if v4 {
		return 20
	}
	return 40
}

// TestTunnel checks that encapsulated packets are unchanged except for one hop less.
func TestTunnel(t *testing.T) {
	b := newBench(t)
	eachSort(t, func(udp, v4 bool, client netip.AddrPort) {
		s := b.remote(udp, v4, ForwardTunnel)
		b.hold(t, s)
		call := first(udp, client, s.Frontends[0])
		call.payload = make([]byte, 40)         // no frame needs padding
		frame := marked(call.frame(), v4, 0x2b) // AF11 and "congestion experienced"
		act, out := b.uplink(t, frame)
		outer := packetView(out)
		if act != redirect || outer == nil {
			t.Fatalf("the program returns %d, want %d and a packet", act, redirect)
		}
		src, dst := ends(out)
		header, _ := outer.sums(out)
		if src.Addr() != s.Reals[0].Seen || dst.Addr() != s.Reals[0].At.Addr() || !header {
			t.Errorf("the outer packet goes from %s to %s, its checksum is valid: %v", src, dst, header)
		}
		size := outerSize(v4)
		if !bytes.Equal(out[ethernet+size:], aged(frame)[ethernet:]) {
			t.Errorf("the inner packet is\n%.100x, and was\n%.100x", out[ethernet+size:], frame[ethernet:])
		}
		if got := classOf(out, v4); got != 0x2b {
			t.Errorf("the outer traffic class is %#x, want 0x2b", got)
		}
		if length := lengthOf(out, v4); length != len(out)-ethernet {
			t.Errorf("the outer length is %d, want %d", length, len(out)-ethernet)
		}
		b.unserve(t, "web")
	})
}

// marked sets the packet's traffic class, and keeps the header's checksum valid.
func marked(frame []byte, v4 bool, class byte) []byte {
	if !v4 {
		frame[ethernet] = 0x60 | class>>4
		frame[ethernet+1] = class << 4
		return frame
	}
	frame[ethernet+1] = class
	return resummed(frame)
}

// resummed recalculates the checksum of an IPv4 header.
func resummed(frame []byte) []byte {
	head := frame[ethernet : ethernet+int(frame[ethernet]&15)*4]
	head[10], head[11] = 0, 0
	var sum uint32
	for at := 0; at < len(head); at += 2 {
		sum += uint32(be(head[at:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(head[10:], ^uint16(sum))
	return frame
}

func classOf(frame []byte, v4 bool) byte {
	if v4 {
		return frame[ethernet+1]
	}
	return frame[ethernet]<<4 | frame[ethernet+1]>>4
}

func lengthOf(frame []byte, v4 bool) int {
	if v4 {
		return int(be(frame[ethernet+2:]))
	}
	return int(be(frame[ethernet+4:])) + 40
}

// TestGUE checks encapsulation in UDP: without a checksum, to the configured port, and
// from a source port that depends on the flow.
func TestGUE(t *testing.T) {
	b := newBench(t)
	eachSort(t, func(udp, v4 bool, client netip.AddrPort) {
		s := b.remote(udp, v4, ForwardTunnel)
		s.GUE = gue
		b.hold(t, s)
		froms := map[uint16]bool{}
		for port := client.Port(); port < client.Port()+8; port++ {
			call := first(udp, netip.AddrPortFrom(client.Addr(), port), s.Frontends[0])
			call.payload = make([]byte, 40)
			frame := marked(call.frame(), v4, 0x2b)
			for range 2 {
				froms[b.wrapsInUDP(t, s.Reals[0], frame, v4)] = true
			}
		}
		if len(froms) < 2 || len(froms) > 8 {
			t.Errorf("8 flows have the source ports %v, want 2 to 8 ports", froms)
		}
		b.unserve(t, "web")
	})
}

// wrapsInUDP fails the test unless the frame is encapsulated correctly, and returns the
// outer source port.
func (b *bench) wrapsInUDP(t *testing.T, r Real, frame []byte, v4 bool) (from uint16) {
	t.Helper()
	act, out := b.uplink(t, frame)
	outer := packetView(out)
	if act != redirect || outer == nil {
		t.Fatalf("the program returns %d, want %d and a packet", act, redirect)
	}
	src, dst := ends(out)
	header, _ := outer.sums(out)
	if src.Addr() != r.Seen || dst != netip.AddrPortFrom(r.At.Addr(), gue) || src.Port() < 49152 || !header {
		t.Errorf("the outer packet goes from %s to %s, its checksum is valid: %v", src, dst, header)
	}
	within := ethernet + outerSize(v4)
	want := []byte{0, 0, 0, 0, 0, map[bool]byte{true: 4, false: 41}[v4], 0, 0} // length and checksum of UDP, GUE
	binary.BigEndian.PutUint16(want, uint16(len(out)-within))
	if got := out[within+4 : within+12]; !bytes.Equal(got, want) {
		t.Errorf("the UDP length and checksum and the GUE header are %x, want %x", got, want)
	}
	if !bytes.Equal(out[within+12:], aged(frame)[ethernet:]) {
		t.Errorf("the inner packet is\n%.100x, and was\n%.100x", out[within+12:], frame[ethernet:])
	}
	if got := classOf(out, v4); got != 0x2b {
		t.Errorf("the outer traffic class is %#x, want 0x2b", got)
	}
	if length := lengthOf(out, v4); length != len(out)-ethernet {
		t.Errorf("the outer length is %d, want %d", length, len(out)-ethernet)
	}
	return src.Port()
}

// TestGUEIsRead checks that the next process reads the GUE port from the maps, and
// notices when it changes there.
func TestGUEIsRead(t *testing.T) {
	b := newBench(t)
	s := b.remote(false, true, ForwardTunnel)
	s.GUE = gue
	b.hold(t, s)
	again, err := openBalancer(b.maps)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got := again.Services(); len(got) != 1 || got[0].GUE != gue || !again.Intact("web") {
		t.Errorf("the maps contain the services %+v", got)
	}
	s.GUE++
	b.hold(t, s)
	if again.Intact("web") {
		t.Error("the service counts as intact although its GUE port has changed")
	}
}

// TestTooBig checks that a sender whose packets exceed the path MTU gets a valid ICMP
// error that contains the MTU and quotes the sent packet.
func TestTooBig(t *testing.T) {
	b := newBench(t)
	eachSort(t, func(udp, v4 bool, client netip.AddrPort) {
		for _, c := range []struct {
			forward uint8
			gue     uint16
			room    int
		}{{ForwardNAT, 0, 1500}, {ForwardDirect, 0, 1500}, {ForwardTunnel, 0, 1500 - outerSize(v4)},
			{ForwardTunnel, gue, 1500 - outerSize(v4) - 12}} {
			room := c.room
			s := b.remote(udp, v4, c.forward)
			s.GUE = c.gue
			b.hold(t, s)
			call := first(udp, client, s.Frontends[0])
			call.payload = make([]byte, room-outerSize(v4)-map[bool]int{true: 8, false: 20}[udp])
			if act, _ := b.uplink(t, call.frame()); act != redirect {
				t.Errorf("%d bytes: the program returns %d, want %d", len(call.frame())-ethernet, act, redirect)
			}
			call.payload = append(call.payload, 1)
			in := call.frame()
			b.mustReport(t, "too large", in, tooBig, uint16(room))
			if c := b.counted(t, "web")[s.Reals[0].At]; c.Drops[0] != 1 {
				t.Errorf("the counters are %+v, want one drop", c)
			}
			b.unserve(t, "web")
		}
	})
}

// TestTooBigFragment checks the same for a sender whose fragments are too large.
func TestTooBigFragment(t *testing.T) {
	b := newBench(t)
	s := b.remote(true, false, ForwardTunnel)
	b.hold(t, s)
	call := first(true, client6, s.Frontends[0])
	call.payload = make([]byte, 1600)
	b.mustReport(t, "a fragment that is too large", call.fragments(1416)[0], tooBig,
		1460) // it has 1464 bytes with its headers
	if act, _ := b.uplink(t, call.fragments(1408)[0]); act != redirect {
		t.Errorf("a fragment that fits: the program returns %d, want %d", act, redirect)
	}
}
