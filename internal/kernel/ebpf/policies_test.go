package ebpf

import (
	"net/netip"
	"testing"

	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// single returns the prefix that has only the address.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// protect writes IPsec policies for the programs.
func (b *bench) protect(tb testing.TB, all ...plan.IPsecPolicy) {
	tb.Helper()
	if err := b.Sources().SetPolicies(all); err != nil {
		tb.Fatal(err)
	}
}

// neighbourOf returns another client on the client's network.
func neighbourOf(client netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(client.Addr().Next(), client.Port())
}

// TestProtectedClientsAreLeftToTheKernel sends requests and replies of a client that an
// IPsec policy covers, before and after the policy exists. No packet is redirected while
// it exists, other clients are served, and so are sandboxes.
func TestProtectedClientsAreLeftToTheKernel(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	eachSort(t, func(udp, v4 bool, client netip.AddrPort) {
		host := map[[2]bool]string{{false, true}: "192.0.2.1:8080", {true, true}: "192.0.2.1:5353",
			{false, false}: "[2001:db8:1::1]:8080", {true, false}: "[2001:db8:1::1]:5353"}[[2]bool{udp, v4}]
		s := b.served(udp, v4)
		b.hold(t, s)
		app := netip.AddrPortFrom(appV6, 40000)
		if v4 {
			app = netip.AddrPortFrom(appV4, 40000)
		}
		for _, to := range []netip.AddrPort{ap(host), s.Frontends[0]} {
			p := first(udp, client, to)
			seen := b.begin(t, p)
			b.protect(t, plan.IPsecPolicy{Local: single(to.Addr()), Remote: single(client.Addr())})
			b.mustLeave(t, "a reply to a protected client", Sandbox, b.behind(seen.dst.Addr()), seen.answer().frame())
			b.mustLeave(t, "a request of a protected client", Uplink, b.up, p.frame())
			other, peer := p, p
			other.src, peer.src = neighbourOf(client), app
			b.mustMap(t, "another client", Uplink, b.up, other.frame())
			b.mustMap(t, "a sandbox", Sandbox, b.app, peer.frame())
			b.protect(t)
			b.mustMap(t, "the client after its policy was deleted", Uplink, b.up, p.frame())
			b.forget(t)
		}
		b.unserve(t, "web")
	})
}

// TestSelectorsOfPolicies compares what the programs leave to the kernel with selectors
// that have prefixes, protocols and ports.
func TestSelectorsOfPolicies(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	tcp, udp := oneOfEach[0], oneOfEach[1]
	anywhere := netip.MustParsePrefix("0.0.0.0/0")
	for _, c := range []struct {
		name     string
		policy   plan.IPsecPolicy
		tcp, udp bool
	}{
		{"all", plan.IPsecPolicy{Local: anywhere, Remote: anywhere}, true, true},
		{"the LAN", plan.IPsecPolicy{Local: single(hostV4), Remote: netip.MustParsePrefix("192.0.2.0/24")}, true, true},
		{"half of the LAN", plan.IPsecPolicy{Local: single(hostV4), Remote: netip.MustParsePrefix("192.0.2.128/25")},
			false, false},
		{"another host address", plan.IPsecPolicy{Local: single(otherV4), Remote: anywhere}, false, false},
		{"TCP", plan.IPsecPolicy{Local: anywhere, Remote: anywhere, Proto: unix.IPPROTO_TCP}, true, false},
		{"ICMP", plan.IPsecPolicy{Local: anywhere, Remote: anywhere, Proto: unix.IPPROTO_ICMP}, false, false},
		{"a port of the host", plan.IPsecPolicy{Local: anywhere, Remote: anywhere, LocalPort: 5353}, false, true},
		{"a port of the client", plan.IPsecPolicy{Local: anywhere, Remote: anywhere, RemotePort: 40000}, true, true},
		{"another port of the client", plan.IPsecPolicy{Local: anywhere, Remote: anywhere, RemotePort: 40001}, false,
			false},
		{"IPv6", plan.IPsecPolicy{Local: everyV6, Remote: everyV6}, false, false},
	} {
		b.protect(t, c.policy)
		for _, packet := range []struct {
			packet
			left bool
		}{{tcp, c.tcp}, {udp, c.udp}} {
			if packet.left {
				b.mustLeave(t, c.name, Uplink, b.up, packet.frame())
			} else {
				b.mustMap(t, c.name, Uplink, b.up, packet.frame())
			}
		}
		b.forget(t)
	}
}

// TestTooManyPolicies checks that the programs redirect no client behind an uplink if the
// host has more policies than they can store.
func TestTooManyPolicies(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	var many []plan.IPsecPolicy
	remote := netip.MustParseAddr("203.0.113.0")
	for range maxPolicies {
		many = append(many, plan.IPsecPolicy{Local: single(hostV4), Remote: single(remote)})
		remote = remote.Next()
	}
	b.protect(t, many...)
	for _, p := range oneOfEach {
		b.mustMap(t, "with as many policies as fit", Uplink, b.up, p.frame())
	}
	b.protect(t, append(many, plan.IPsecPolicy{Local: single(hostV4), Remote: single(remote)})...)
	for _, p := range oneOfEach {
		b.mustLeave(t, "with one more", Uplink, b.up, p.frame())
	}
}

// TestProtectedRealServer checks that packets for a real server on another host are left
// to the kernel while an IPsec policy covers them.
func TestProtectedRealServer(t *testing.T) {
	b := newBench(t)
	eachSort(t, func(udp, v4 bool, client netip.AddrPort) {
		s := b.served(udp, v4)
		far, seen := farV6, hostV6
		if v4 {
			far, seen = farV4, hostV4
		}
		policy := plan.IPsecPolicy{Local: single(seen), Remote: single(far), RemotePort: 1}
		call := first(udp, client, s.Frontends[0])
		for forward, flags := range map[uint8]uint16{ForwardNAT: RealMasquerade, ForwardTunnel: RealTunnel,
			ForwardDirect: 0} {
			s.Forward, s.Ring, s.Reals = forward, []uint16{0}, []Real{{At: netip.AddrPortFrom(far, 8000), Weight: 1,
				Seen: seen, Ifindex: uint32(b.up), Flags: RealRemote | flags}}
			b.hold(t, s)
			for range 2 {
				if act, _ := b.uplink(t, call.frame()); act != redirect {
					t.Errorf("forwarding %d: without a policy the call returns %d, want %d", forward, act, redirect)
				}
				b.protect(t, policy)
				if forward != ForwardDirect {
					b.mustLeave(t, "a call with the policy", Uplink, b.up, call.frame())
				}
				b.protect(t)
			}
			b.unserve(t, "web")
		}
	})
}

// TestMaskOf compares masks with prefixes in the programs' form.
func TestMaskOf(t *testing.T) {
	for prefix, want := range map[string]string{
		"0.0.0.0/0": "ffff:ffff:ffff:ffff:ffff:ffff::", "10.0.0.0/9": "ffff:ffff:ffff:ffff:ffff:ffff:ff80:0",
		"::/0": "::", "2001:db8::/33": "ffff:ffff:8000::",
	} {
		if got := maskOf(netip.MustParsePrefix(prefix)); got != Address(netip.MustParseAddr(want)) {
			t.Errorf("the mask of %s is %s, want %s", prefix, Netip(got), want)
		}
	}
}
