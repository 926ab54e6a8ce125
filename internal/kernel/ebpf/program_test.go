package ebpf

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

var anyV4, anyV6 = netip.IPv4Unspecified(), netip.IPv6Unspecified()

// publishUsual fills the table with mappings of each sort, for both families.
func (b *bench) publishUsual(tb testing.TB) {
	tb.Helper()
	for _, host := range []netip.Addr{anyV4, anyV6} {
		b.publish(tb,
			b.mapping(false, host, 8080, 8080, 80, 0),
			b.mapping(false, host, 8088, 8088, 80, 0), // the same port again
			b.mapping(true, host, 5353, 5353, 53, 0),
			b.mapping(true, host, 5454, 5454, 53, 0),
			b.mapping(false, host, 9000, 9010, 7000, 0),
			b.mapping(false, host, 8081, 8081, 80, MappingLocal),
			b.mapping(false, host, 8082, 8082, 80, MappingGrant))
	}
	other := b.mapping(false, otherV4, 8443, 8443, 444, 0)
	other.To = Address(appV4)
	b.publish(tb, b.mapping(false, hostV4, 8443, 8443, 443, 0), other)
}

func ap(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// client4 and client6 are the clients of most packets.
var client4, client6 = ap("192.0.2.77:40000"), ap("[2001:db8:1::77]:40000")

// first returns the first packet of a flow.
func first(udp bool, from, to netip.AddrPort) packet {
	if udp {
		return packet{src: from, dst: to, udp: true, payload: []byte("question")}
	}
	return packet{src: from, dst: to, flags: syn, seq: 1000}
}

func TestInward(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	for _, c := range []struct {
		name       string
		udp        bool
		from, to   netip.AddrPort
		translated netip.AddrPort
	}{
		{"TCP", false, client4, ap("192.0.2.1:8080"), ap("10.9.0.2:80")},
		{"UDP", true, client4, ap("192.0.2.1:5353"), ap("10.9.0.2:53")},
		{"TCP over IPv6", false, client6, ap("[2001:db8:1::1]:8080"), ap("[fd00:9::2]:80")},
		{"UDP over IPv6", true, client6, ap("[2001:db8:1::1]:5353"), ap("[fd00:9::2]:53")},
		{"first port of a range", false, client4, ap("192.0.2.1:9000"), ap("10.9.0.2:7000")},
		{"last port of a range", false, client6, ap("[2001:db8:1::1]:9010"), ap("[fd00:9::2]:7010")},
		{"one of two host addresses", false, client4, ap("192.0.2.1:8443"), ap("10.9.0.2:443")},
		{"the other host address", false, client4, ap("192.0.2.2:8443"), ap("10.9.0.3:444")},
		{"a host address towards the sandboxes", false, client4, ap("10.9.0.1:8080"), ap("10.9.0.2:80")},
	} {
		b.forget(t)
		in := first(c.udp, c.from, c.to)
		out := b.mustMap(t, c.name, Uplink, b.up, in.frame())
		if src, dst := ends(out); src != c.from || dst != c.translated {
			t.Errorf("%s: translated to %s with the source %s, want %s and %s", c.name, dst, src, c.translated, c.from)
		}
		flows := b.flows(t)
		if len(flows) != 1 || flows[0].Host != c.to || flows[0].Client != c.from || flows[0].Endpoint != c.translated {
			t.Errorf("%s: the flows are %v", c.name, flows)
		}
	}
}

// mustMap runs the program, and fails the test unless the program translates the frame,
// changes nothing else, and keeps the checksums valid. The kernel's copy of the network
// card's checksum must stay valid too. Returns the translated frame.
func (b *bench) mustMap(tb testing.TB, name, program string, link int, frame []byte) []byte {
	tb.Helper()
	act, out := b.run(tb, program, frame, skb{Ifindex: uint32(link)}, b.summing(tb, frame))
	if act != redirect {
		tb.Fatalf("%s: %s returns %d, want %d", name, program, act, redirect)
	}
	checkChange(tb, name, frame, out)
	return out
}

// summing returns the flag with which the kernel keeps and verifies the checksum over
// the frame, or 0 before Linux 6.16. The kernel does not verify a datagram without a
// checksum.
func (b *bench) summing(tb testing.TB, frame []byte) uint32 {
	tb.Helper()
	v := packetView(frame)
	if !kernelHas(6, 16) || v.proto == protoUDP && !v.later && be(frame[v.checksumAt():]) == 0 {
		return 0
	}
	return checksumComplete
}

// checkChange checks that a translated frame differs only where it may, and that its
// checksums are as valid as before.
func checkChange(tb testing.TB, name string, in, out []byte) {
	tb.Helper()
	v := packetView(in)
	may := v.mayChange(in)
	if len(in) != len(out) {
		tb.Fatalf("%s: %d bytes became %d", name, len(in), len(out))
	}
	for i := range in {
		if in[i] != out[i] && !may[i] {
			tb.Errorf("%s: byte %d became %#x, was %#x", name, i, out[i], in[i])
		}
	}
	for h := v; h != nil; h = h.quote {
		header, transport := h.sums(in)
		headerNow, transportNow := h.sums(out)
		if header && !headerNow {
			tb.Errorf("%s: the checksum of the header at %d is wrong", name, h.l3)
		}
		if transport && !transportNow && h == v && !unsummed(v, in) {
			tb.Errorf("%s: the checksum at %d is wrong", name, h.checksumAt())
		}
	}
	if v.proto == protoUDP && !v.later && unsummed(v, in) != unsummed(v, out) {
		tb.Errorf("%s: the UDP checksum was %#x and becomes %#x", name,
			be(in[v.checksumAt():]), be(out[v.checksumAt():]))
	}
}

// unsummed reports whether the packet is a datagram without a checksum.
func unsummed(v *view, frame []byte) bool {
	return v.proto == protoUDP && be(frame[v.checksumAt():]) == 0
}

// mustLeave runs the program, and fails the test unless the program leaves the frame
// unchanged to the kernel and creates no flow.
func (b *bench) mustLeave(tb testing.TB, name, program string, link int, frame []byte) {
	tb.Helper()
	before := len(b.flows(tb))
	act, out := b.run(tb, program, frame, skb{Ifindex: uint32(link)}, 0)
	if act != untouched {
		tb.Errorf("%s: %s returns %d, want %d", name, program, act, untouched)
	}
	if !bytes.Equal(frame, out) {
		tb.Errorf("%s: %s changed\n%x to\n%x", name, program, frame, out)
	}
	if after := b.flows(tb); len(after) > before {
		tb.Errorf("%s: %s created a flow: %v", name, program, after)
	}
}

func TestInwardLeavesOtherPackets(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	usual := first(false, client4, ap("192.0.2.1:8080"))
	other, group, everyone, spoiled := usual, usual, usual, usual
	other.mac, group.mac, everyone.mac = []byte{2, 0, 0, 0, 0, 8}, []byte{1, 0, 0x5e, 0, 0, 1},
		[]byte{255, 255, 255, 255, 255, 255}
	spoiled.flags = rst
	closing := spoiled
	closing.flags = fin | ack
	for name, frame := range map[string][]byte{
		"for another host":       other.frame(),
		"to a multicast MAC":     group.frame(),
		"to the broadcast MAC":   everyone.frame(),
		"with a VLAN tag":        tagged(usual.frame()),
		"a reset without a flow": spoiled.frame(),
		"a FIN without a flow":   closing.frame(),
		"ARP":                    append(append(usual.frame()[:12:12], 8, 6), usual.frame()[14:]...),
		"an IP version of five":  edit(usual.frame(), ethernet, 0x55),
		"a header of 16 bytes":   edit(usual.frame(), ethernet, 0x44),
		"of another protocol":    edit(usual.frame(), ethernet+9, 132),
		"a later fragment":       first(true, client4, ap("192.0.2.1:5353")).fragments(8)[1],
		"hop-by-hop options": first(true, client6, ap("[2001:db8:1::1]:5353")).
			network(0, append([]byte{protoUDP, 0, 1, 4, 0, 0, 0, 0},
				first(true, client6, ap("[2001:db8:1::1]:5353")).transport()...)),
	} {
		b.mustLeave(t, name, Uplink, b.up, frame)
	}
	for _, dst := range []string{
		"192.0.2.1:8079", "192.0.2.1:8999", "192.0.2.1:9011", "192.0.2.1:5353", "10.9.0.1:8443", "192.0.2.1:8081",
		"192.0.2.1:8082",
		"192.0.2.78:8080", "10.9.0.2:8080", "127.0.0.1:8080", "224.0.0.251:8080", "255.255.255.255:8080",
	} {
		b.mustLeave(t, dst, Uplink, b.up, first(false, client4, ap(dst)).frame())
	}
	for _, dst := range []string{
		"[2001:db8:1::1]:8079", "[2001:db8:1::3]:8080", "[fd00:9::2]:8080", "[::1]:8080", "[ff02::fb]:8080",
		"[::ffff:192.0.2.1]:8080",
	} {
		b.mustLeave(t, dst, Uplink, b.up, first(false, client6, ap(dst)).frame())
	}
	b.mustLeave(t, "from loopback", Uplink, b.up, first(false, ap("127.0.0.1:40000"), ap("192.0.2.1:8080")).frame())
	b.mustLeave(t, "from ::1", Uplink, b.up, first(false, ap("[::1]:40000"), ap("[2001:db8:1::1]:8080")).frame())
}

// edit returns a copy of the frame with another byte at an offset.
func edit(frame []byte, at int, to byte) []byte {
	frame = bytes.Clone(frame)
	frame[at] = to
	return frame
}

// TestCutOff truncates packets to every length for which the kernel runs programs; all
// of them contain a complete network header. A packet without a complete transport
// header is not translated. Longer ones are, and the sandbox's kernel judges them.
func TestCutOff(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	for _, c := range []struct {
		udp           bool
		from, to      netip.AddrPort
		network, need int
	}{
		{false, client4, ap("192.0.2.1:8080"), 20, 20},
		{true, client4, ap("192.0.2.1:5353"), 20, 8},
		{false, client6, ap("[2001:db8:1::1]:8080"), 40, 20},
		{true, client6, ap("[2001:db8:1::1]:5353"), 40, 8},
	} {
		whole := first(c.udp, c.from, c.to).frame()
		l4 := ethernet + c.network
		for n := range c.need {
			b.mustLeave(t, c.to.String(), Uplink, b.up, whole[:l4+n])
		}
		b.mustMap(t, c.to.String(), Uplink, b.up, whole[:l4+c.need])
		b.forget(t)
	}
}

func TestShapesOfPackets(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	question := first(true, client4, ap("192.0.2.1:5353"))
	options, silent, silent6, big := question, question, first(true, client6, ap("[2001:db8:1::1]:5353")),
		first(false, client4, ap("192.0.2.1:8080"))
	options.options, silent.noSum, silent6.noSum = true, true, true
	big.payload = bytes.Repeat([]byte("x"), 2800)
	b.mustMap(t, "IP options", Uplink, b.up, options.frame())
	b.mustMap(t, "no UDP checksum", Uplink, b.up, silent.frame())
	b.mustMap(t, "no UDP checksum over IPv6", Uplink, b.up, silent6.frame())
	act, out := b.run(t, Uplink, big.frame(), skb{Ifindex: uint32(b.up), GSOSize: 1400, GSOSegs: 2}, 0)
	if act != redirect {
		t.Fatalf("a packet of two segments: uplink returns %d", act)
	}
	checkChange(t, "a packet of two segments", big.frame(), out)
}

// TestSumOfZero translates datagrams until the new checksum of one is 0. In UDP 0 means
// that there is no checksum, so the program must write 0xffff.
func TestSumOfZero(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	zeros := 0
	for i := range 1 << 16 {
		p := first(true, client4, ap("192.0.2.1:5353"))
		p.payload = []byte{byte(i >> 8), byte(i)}
		p.dst = netip.AddrPortFrom(webV4, 53)
		if at := p.transport(); be(at[6:]) != 0xffff {
			continue
		}
		zeros++
		p.dst = ap("192.0.2.1:5353")
		out := b.mustMap(t, "a checksum of zero", Uplink, b.up, p.frame())
		if got := be(out[ethernet+26:]); got != 0xffff {
			t.Errorf("the checksum is %#x, want 0xffff", got)
		}
	}
	if zeros == 0 {
		t.Error("no payload gives a checksum of zero")
	}
}

func TestHostsOwnConnection(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	var fd int
	b.do(t, func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Port: 5353, Addr: hostV4.As4()}),
			unix.Connect(fd, &unix.SockaddrInet4{Port: 40000, Addr: client4.Addr().As4()}))
	})
	defer unix.Close(fd)
	b.mustLeave(t, "an answer to the host", Uplink, b.up, first(true, client4, ap("192.0.2.1:5353")).frame())
	b.mustMap(t, "another client", Uplink, b.up, first(true, ap("192.0.2.77:40001"), ap("192.0.2.1:5353")).frame())
}

// TestAddresses checks that packets to an address are translated if only the list of
// addresses contains it, as when forwarding is off.
func TestAddresses(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	needsRestart := netip.MustParseAddr("192.0.2.78")
	p := first(false, client4, netip.AddrPortFrom(needsRestart, 8080))
	for _, known := range [][]netip.Addr{{needsRestart, netip.MustParseAddr("127.0.0.1")}, {hostV4}} {
		if err := b.Sources().SetAddresses(known); err != nil {
			t.Fatal(err)
		}
		if known[0] == needsRestart {
			b.mustMap(t, "listed", Uplink, b.up, p.frame())
			b.forget(t)
		} else {
			b.mustLeave(t, "removed from the list", Uplink, b.up, p.frame())
		}
	}
	var key [16]byte
	if n := count(b.maps[bpf.FairleadMapFlAddresses], &key); n != 1 {
		t.Errorf("the list has %d addresses, want 1", n)
	}
}

func count(m *ebpf.Map, key any) (n int) {
	var value uint8
	for it := m.Iterate(); it.Next(key, &value); {
		n++
	}
	return n
}
