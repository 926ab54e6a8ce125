package ebpf

import (
	"bytes"
	"net/netip"
	"testing"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
)

// The types and codes of the errors: ICMP at true, ICMPv6 at false.
var (
	portUnreachable = map[bool][2]byte{true: {3, 3}, false: {1, 4}}
	tooBig          = map[bool][2]byte{true: {3, 4}, false: {2, 0}}
	timeExceeded    = map[bool][2]byte{true: {11, 0}, false: {3, 0}}
)

// mustReport fails the test unless the program at an uplink replies to a packet with
// an ICMP error of a kind. The error must go to the packet's sender, come from the
// packet's destination, quote the unchanged packet and be valid itself.
func (b *bench) mustReport(tb testing.TB, name string, in []byte, kinds map[bool][2]byte, rest uint16) {
	tb.Helper()
	act, out := b.uplink(tb, in)
	if act != redirect {
		tb.Fatalf("%s: the program returns %d, want %d", name, act, redirect)
	}
	was, v := packetView(in), packetView(out)
	src, dst := was.addresses(in)
	if from, to := v.addresses(out); from != dst || to != src || !bytes.Equal(out[:6], in[6:12]) ||
		!bytes.Equal(out[6:12], in[:6]) {
		tb.Errorf("%s: %s gets an error from %s, want %s from %s\n%x", name, to, from, src, dst, out)
	}
	if header, message := v.sums(out); !header || !message {
		tb.Errorf("%s: the checksums of the headers are right: %v, %v\n%x", name, header, message, out)
	}
	if kind := [2]byte(out[v.l4:]); kind != kinds[src.Is4()] || be(out[v.l4+4:]) != 0 || be(out[v.l4+6:]) != rest {
		tb.Errorf("%s: the message is %x, want %x with %d", name, out[v.l4:v.l4+8], kinds[src.Is4()], rest)
	}
	if quote := out[v.l4+8:]; len(quote) < was.l4-ethernet+8 || !bytes.Equal(quote, in[ethernet:ethernet+len(quote)]) {
		tb.Errorf("%s: the error quotes\n%x of\n%x", name, quote, in[ethernet:])
	}
	if end := ethernet + lengthOf(out, src.Is4()); end != len(out) {
		tb.Errorf("%s: the length in the IP header is %d, want %d", name, end, len(out))
	}
}

// atItsEnd returns the frame with a TTL or hop limit of 1.
func atItsEnd(frame []byte) []byte {
	for frame[ethernet+map[bool]int{true: 7, false: 8}[frame[ethernet]>>4 == 6]] > 1 {
		frame = aged(frame)
	}
	return frame
}

// eachCall runs a test for each protocol and family with the first packet of a client
// to a service with a remote real server.
func (b *bench) eachCall(t *testing.T, try func(real netip.AddrPort, call packet, v4 bool)) {
	t.Helper()
	eachSort(t, func(udp, v4 bool, client netip.AddrPort) {
		s := b.remote(udp, v4, ForwardNAT)
		s.Reals[0].At = netip.AddrPortFrom(s.Reals[0].At.Addr(), 8000)
		b.hold(t, s)
		try(s.Reals[0].At, first(udp, client, s.Frontends[0]), v4)
		b.unserve(t, "web")
	})
}

// TestTimeExceeded checks that the sender of a packet whose TTL expires gets an error,
// whatever the packet's shape, and that other packets are forwarded as before.
func TestTimeExceeded(t *testing.T) {
	b := newBench(t)
	b.eachCall(t, func(real netip.AddrPort, call packet, v4 bool) {
		long, empty, options := call, call, call
		long.payload, empty.payload, options.options = make([]byte, 1400), nil, v4
		large := call
		large.payload = make([]byte, 1600)
		for name, frame := range map[string][]byte{
			"first packet": call.frame(), "large payload": long.frame(), "no payload": empty.frame(),
			"with options": options.frame(), "over the MTU": large.frame(), "first fragment": long.fragments(800)[0],
		} {
			b.mustReport(t, name, atItsEnd(frame), timeExceeded, 0)
		}
		b.mustSendOn(t, "with a sufficient TTL", call.frame())
		if c := b.counted(t, "web")[real]; c.Drops[0] != 6 || c.Packets[0] != 1 {
			t.Errorf("the counters are %+v, want 6 drops and 1 packet", c)
		}
	})
}

// TestNoError checks that no error is sent about an ICMP error or a later fragment,
// nor to an address that is not a single host's.
func TestNoError(t *testing.T) {
	b := newBench(t)
	b.routers(t)
	b.eachCall(t, func(_ netip.AddrPort, call packet, v4 bool) {
		call.payload = make([]byte, 64)
		b.mustSendOn(t, "the first packet", call.frame())
		b.mustSendOn(t, "a first fragment", call.fragments(32)[0])
		frames := map[string][]byte{
			"an error":         icmpError(router(call), call.answer().frame(), 100),
			"a later fragment": call.fragments(32)[1],
		}
		for _, a := range map[bool][]string{true: {"224.0.0.1", "255.255.255.255", "0.0.0.0"},
			false: {"ff02::1", "::"}}[v4] {
			call.src = netip.AddrPortFrom(netip.MustParseAddr(a), call.src.Port())
			frames["a packet from "+a] = call.frame()
		}
		for name, frame := range frames {
			if act, _ := b.uplink(t, atItsEnd(frame)); act != dropped {
				t.Errorf("%s: the program returns %d, want %d", name, act, dropped)
			}
		}
	})
}

// TestTellingIsPaidFor checks the rate limit of ICMP errors. Over the limit only the
// error that a packet is too large is sent.
func TestTellingIsPaidFor(t *testing.T) {
	b := newBench(t)
	b.eachCall(t, func(_ netip.AddrPort, call packet, _ bool) {
		end := atItsEnd(call.frame())
		b.pay(t, 0)
		b.mustReport(t, "the first error", end, timeExceeded, 0)
		once := b.rateLimit(t)
		b.mustReport(t, "the second error", end, timeExceeded, 0)
		if twice := b.rateLimit(t); once == 0 || twice <= once {
			t.Errorf("the rate limit is used up to %d after one error, and to %d after two", once, twice)
		}
		b.pay(t, 1<<62)
		if act, _ := b.uplink(t, end); act != dropped {
			t.Errorf("a packet over the rate limit: the program returns %d, want %d", act, dropped)
		}
		call.payload = make([]byte, 1600)
		b.mustReport(t, "too large", call.frame(), tooBig, 1500)
		if b.rateLimit(t) != 1<<62 {
			t.Error("the error that a packet is too large counts against the rate limit")
		}
		b.pay(t, 0)
	})
}

// pay sets the time until which the rate limit is used up, on every CPU.
func (b *bench) pay(tb testing.TB, until uint64) {
	tb.Helper()
	all := make([]uint64, ebpf.MustPossibleCPU())
	for i := range all {
		all[i] = until
	}
	if err := b.maps[bpf.FairleadMapFlIcmpRate].Put(uint32(0), all); err != nil {
		tb.Fatal(err)
	}
}

// rateLimit returns the time until which the rate limit on the bench's CPU is used up.
func (b *bench) rateLimit(tb testing.TB) (until uint64) {
	tb.Helper()
	var all []uint64
	if err := b.maps[bpf.FairleadMapFlIcmpRate].Lookup(uint32(0), &all); err != nil {
		tb.Fatal(err)
	}
	for _, one := range all {
		until = max(until, one)
	}
	return until
}
