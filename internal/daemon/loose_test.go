package daemon_test

import (
	"testing"

	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/test/shell"
)

// TestLooseSourceCheck lets the packets of a client arrive on one uplink, while the host's
// route back to it uses another one. With --source-check loose the client reaches the
// port that is published via ebpf. As a client behind a router, it does not announce its
// hardware address on the uplink.
func TestLooseSourceCheck(t *testing.T) {
	w := newLANWorld(t)
	w.host.EBPF().Options().LooseSources = true
	if err := kernel.Wire(w.host, w.client, "wire1", 1500); err != nil {
		t.Fatal(err)
	}
	const loose = "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >$f; done; "
	w.sh(loose + "ip addr add 203.0.113.2/30 dev wire1; ip link set wire1 up; ip route add 192.0.2.9/32 via 198.51.100.1")
	shell.Run(t, w.client.Do, loose+"sysctl -qw net.ipv4.conf.wire1.arp_ignore=1 net.ipv4.conf.wire1.arp_announce=2; "+
		"ip addr add 203.0.113.1/30 dev wire1; ip link set wire1 up; ip addr add 192.0.2.9/32 dev lo; ip link set lo up; "+
		"ip route add 198.51.100.2/32 via 203.0.113.2 src 192.0.2.9")
	w.start()
	w.web(lan, model.Limit{}, published(model.ViaEBPF, 8080))
	w.answers(w.client.Do, hosts4+":8080")
}
