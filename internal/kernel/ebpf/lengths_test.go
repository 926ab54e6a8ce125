package ebpf

import (
	"net/netip"
	"testing"

	"fairlead/internal/plan"
)

// TestEveryEntryOfTheLongestChain publishes one port on as many host addresses as the table allows, each for another
// port of the sandbox. Packets to each address reach its port, and those to another address of the host are left.
func TestEveryEntryOfTheLongestChain(t *testing.T) {
	b := newBench(t)
	hosts := []netip.Addr{hostV4}
	for n := range uint16(maxChain) {
		host := Netip(hostAddress(int(n)))
		hosts = append(hosts, host)
		b.publish(t, b.mapping(false, host, 8080, 8080, 7000+n, 0), b.mapping(true, host, 8080, 8080, 7000+n, 0))
	}
	if err := b.Sources().SetAddresses(hosts); err != nil {
		t.Fatal(err)
	}
	for _, udp := range []bool{false, true} {
		for n, host := range hosts[1:] {
			call := first(udp, client4, netip.AddrPortFrom(host, 8080))
			_, dst := ends(b.mustMap(t, "a call", Uplink, b.up, call.frame()))
			if want := netip.AddrPortFrom(webV4, 7000+uint16(n)); dst != want {
				t.Errorf("the call to address %d goes to %s, want %s", n, dst, want)
			}
		}
		b.mustLeave(t, "a call to another address", Uplink, b.up, first(udp, client4, ap("192.0.2.1:8080")).frame())
	}
}

// TestEveryPolicyProtects checks that each of as many policies as the programs can store protects its client, and
// that clients without a policy are served.
func TestEveryPolicyProtects(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	clients := []netip.AddrPort{client4}
	for range maxPolicies {
		clients = append(clients, neighbourOf(clients[len(clients)-1]))
	}
	for _, n := range []int{1, 15, 16, 17, 32, 127, maxPolicies} {
		var all []plan.IPsecPolicy
		for _, client := range clients[:n] {
			all = append(all, plan.IPsecPolicy{Local: single(hostV4), Remote: single(client.Addr())})
		}
		b.protect(t, all...)
		for _, client := range clients[:n] {
			b.mustLeave(t, "a protected client", Uplink, b.up, first(true, client, ap("192.0.2.1:5353")).frame())
		}
		b.mustMap(t, "a client without a policy", Uplink, b.up, first(true, clients[n], ap("192.0.2.1:5353")).frame())
		b.forget(t)
	}
}

// TestLoadOfEveryRealServerIsCompared gives services of several sizes as many flows as they have real servers. Each
// real server gets one of them.
func TestLoadOfEveryRealServerIsCompared(t *testing.T) {
	b := newBench(t)
	for _, n := range []uint16{1, 15, 16, 17, 32, 33, 255, 256} {
		s := b.served(true, true)
		s.Scheduling, s.Ring, s.Reals = ByCount, nil, nil
		for i := range n {
			s.Ring = append(s.Ring, i)
			s.Reals = append(s.Reals, Real{At: netip.AddrPortFrom(webV4, 8000+i), Weight: 1, Seen: gateV4,
				Ifindex: uint32(b.web)})
		}
		b.hold(t, s)
		seen := map[netip.AddrPort]int{}
		for port := range n {
			from := netip.AddrPortFrom(client4.Addr(), 40000+port)
			_, dst := ends(b.mustMap(t, "a call", Uplink, b.up, first(true, from, s.Frontends[0]).frame()))
			seen[dst]++
		}
		if len(seen) != int(n) {
			t.Errorf("%d flows go to %d of %d real servers", n, len(seen), n)
		}
		b.unserve(t, "web")
		b.forget(t)
	}
}
