package ebpf

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

// The routers between the clients and the host, which send errors.
var (
	routerV4, routerV6 = netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8:9::1")
)

// errorCases are the first packets of the flows that the errors are about.
var errorCases = []packet{
	first(false, client4, ap("192.0.2.1:8080")),
	first(true, client4, ap("192.0.2.1:5353")),
	first(false, client6, ap("[2001:db8:1::1]:9004")),
	first(true, client6, ap("[2001:db8:1::1]:5353")),
}

func router(p packet) netip.Addr {
	if p.src.Addr().Is4() {
		return routerV4
	}
	return routerV6
}

// TestErrorAboutAnAnswer checks that an error about an endpoint's packet is translated:
// the endpoint must recognise its packet in the quote.
func TestErrorAboutAnAnswer(t *testing.T) {
	b := newBench(t)
	b.routers(t)
	b.publishUsual(t)
	for _, p := range errorCases {
		seen := b.begin(t, p)
		sent := p.answer() // as the router saw it
		for _, quoted := range []int{100, 68} {
			out := b.mustMap(t, "error inward", Uplink, b.up, icmpError(router(p), sent.frame(), quoted))
			v := packetView(out)
			if _, to := v.addresses(out); to != seen.dst.Addr() {
				t.Errorf("the error about %s goes to %s, want %s", sent.src, to, seen.dst.Addr())
			}
			if src, dst := v.quote.ends(out); src != seen.dst || dst != p.src {
				t.Errorf("the error quotes %s to %s, want %s to %s", src, dst, seen.dst, p.src)
			}
		}
	}
}

// TestErrorAboutAQuestion checks that an error about a client's packet is translated:
// its source becomes the address that the client dialled.
func TestErrorAboutAQuestion(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	for _, p := range errorCases {
		seen := b.begin(t, p)
		out := b.mustMap(t, "error outward", Sandbox, b.web, icmpError(seen.dst.Addr(), seen.frame(), 100))
		v := packetView(out)
		if from, to := v.addresses(out); from != p.dst.Addr() || to != p.src.Addr() {
			t.Errorf("the error comes from %s to %s, want from %s to %s", from, to, p.dst.Addr(), p.src.Addr())
		}
		if src, dst := v.quote.ends(out); src != p.src || dst != p.dst {
			t.Errorf("the error quotes %s to %s, want %s to %s", src, dst, p.src, p.dst)
		}
	}
}

// TestErrorOfASandbox checks the translation of an error that a sandbox sends as a
// client.
func TestErrorOfASandbox(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	p := first(true, netip.AddrPortFrom(appV4, 40000), ap("192.0.2.1:5353"))
	b.mustMap(t, "request", Sandbox, b.app, p.frame())
	out := b.mustMap(t, "error", Sandbox, b.app, icmpError(appV4, p.answer().frame(), 100))
	if _, to := packetView(out).addresses(out); to != webV4 {
		t.Errorf("the error goes to %s, want %s", to, webV4)
	}
}

func TestErrorsLeftAlone(t *testing.T) {
	b := newBench(t)
	b.routers(t)
	b.publishUsual(t)
	for _, p := range errorCases {
		seen := b.begin(t, p)
		otherClient, otherPort := p.answer(), p.answer()
		otherClient.dst = netip.AddrPortFrom(p.src.Addr(), 40001)
		otherPort.src = netip.AddrPortFrom(p.dst.Addr(), 9)
		b.mustLeave(t, "about another client", Uplink, b.up, icmpError(router(p), otherClient.frame(), 100))
		b.mustLeave(t, "about another port", Uplink, b.up, icmpError(router(p), otherPort.frame(), 100))
		b.mustLeave(t, "about a client's packet", Uplink, b.up, icmpError(router(p), p.frame(), 100))
		b.mustLeave(t, "about a packet without a flow", Sandbox, b.web,
			icmpError(seen.dst.Addr(), otherClient.frame(), 100))
		whole := icmpError(router(p), p.answer().frame(), 100)
		for at := packetView(whole).l4; at < packetView(whole).quote.l4+4; at++ {
			b.mustLeave(t, "cut off", Uplink, b.up, whole[:at])
		}
		echo := edit(whole, packetView(whole).l4, map[bool]byte{false: 8, true: 128}[packetView(whole).v6])
		b.mustLeave(t, "an echo request", Uplink, b.up, echo)
	}
	later := first(true, ap("192.0.2.1:5353"), client4).fragments(8)[1]
	binary.BigEndian.PutUint16(later[ethernet+20:], 5353) // where ports would be
	b.mustLeave(t, "about a later fragment", Uplink, b.up, icmpError(routerV4, later, 100))
}
