package localaddr

import (
	"net/netip"
	"testing"

	"fairlead/internal/kernel/kerneltest"
)

// TestHas: the addresses of links are the host's, secondary ones and 127.0.0.0/8 too. Those of
// neighbours, behind routers and without a route are not, even if sockets may be bound to any address.
func TestHas(t *testing.T) {
	ns := kerneltest.Netns(t)
	kerneltest.Run(t, ns, "sh", "-ec", `
		ip link set lo up
		ip link add near type veth peer name far
		ip addr add 192.0.2.1/24 dev near
		ip addr add 192.0.2.2/24 dev near
		ip addr add 2001:db8::1/64 dev near nodad
		ip link set near up
		ip link set far up
		ip route add 198.51.100.0/24 via 192.0.2.9
		ip route add blackhole 203.0.113.1
		ip route add prohibit 203.0.113.2
		ip route add unreachable 2001:db8:1::1
		sysctl -qw net.ipv4.ip_nonlocal_bind=1 net.ipv6.ip_nonlocal_bind=1`)
	for address, want := range map[string]bool{
		"192.0.2.1": true, "192.0.2.2": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true, "2001:db8::1": true,
		"::ffff:192.0.2.1": true,
		"192.0.2.9":        false, "198.51.100.1": false, "203.0.113.1": false, "203.0.113.2": false,
		"203.0.113.3": false, "2001:db8::9": false, "2001:db8:1::1": false, "2001:db8:2::1": false,
		"::ffff:192.0.2.9": false,
	} {
		if err := ns.Do(func() error {
			got, err := Has(netip.MustParseAddr(address))
			if got != want {
				t.Errorf("%s is the host's: %v, want %v", address, got, want)
			}
			return err
		}); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}
