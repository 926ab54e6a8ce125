package overlay_test

import (
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/fabric"
)

var (
	addr   = netip.MustParseAddr
	prefix = netip.MustParsePrefix
)

// TestRepair damages an overlay. Verify must report the damage, and Heal must restore the traffic.
func TestRepair(t *testing.T) {
	table := plan.NoTrack{Port: model.PortVXLAN, Local: addr("198.51.100.1")}.Table()
	for name, c := range map[string]struct{ damage, want string }{
		"tunnel deleted":                 {"ip link del fx-net", "ip link add fx-net"},
		"tunnel down":                    {"ip link set fx-net down", "ip link add fx-net"},
		"tunnel removed from the bridge": {"ip link set fx-net nomaster", "master fl-net"},
		"tunnel's MTU changed":           {"ip link set fx-net mtu 1300", "mtu 1450"},
		"bridge deleted":                 {"ip link del fl-net", "ip link add fl-net"},
		"suppression off": {"ip link set fx-net type bridge_slave neigh_suppress off",
			"neigh_suppress on"},
		"forwarding entries flushed": {"bridge fdb show dev fx-net | while read mac dst host rest; do [ $dst != dst ] || bridge fdb del $mac dev fx-net dst $host self; done", "bridge fdb append 00:00:00:00:00:00 dev fx-net dst 198.51.100.2 self permanent"},
		"forwarding entry changed": {"bridge fdb replace 02:f1:0a:09:00:41 dev fx-net dst 198.51.100.77 self static",
			"bridge fdb replace 02:f1:0a:09:00:41 dev fx-net dst 198.51.100.2 self master static"},
		"bridge's entry deleted": {"bridge fdb del 02:f1:0a:09:00:41 dev fx-net master",
			"bridge fdb replace 02:f1:0a:09:00:41 dev fx-net dst 198.51.100.2 self master static"},
		"neighbours flushed": {"ip neigh flush dev fl-net nud permanent",
			"ip neigh replace 10.9.0.65 lladdr 02:f1:0a:09:00:41 dev fl-net nud permanent"},
		"neighbour changed": {"ip neigh replace 10.9.0.65 lladdr 02:00:00:00:00:09 dev fl-net nud permanent",
			"ip neigh replace 10.9.0.65 lladdr 02:f1:0a:09:00:41 dev fl-net nud permanent"},
		"leftover forwarding entry": {"bridge fdb add 02:00:00:00:00:09 dev fx-net dst 198.51.100.77 self static",
			"bridge fdb del 02:00:00:00:00:09 dev fx-net dst 198.51.100.77 self"},
		"leftover host that gets copies": {"bridge fdb append 00:00:00:00:00:00 dev fx-net dst 198.51.100.77 self permanent", "bridge fdb del 00:00:00:00:00:00 dev fx-net dst 198.51.100.77 self"},
		"leftover neighbour": {"ip neigh add 10.9.0.99 lladdr 02:00:00:00:00:09 dev fl-net nud permanent",
			"ip neigh del 10.9.0.99 dev fl-net"},
		"learned entry of a removed host": {"bridge fdb add 02:00:00:00:00:09 dev fx-net dst 198.51.100.77 self dynamic", "bridge fdb del 02:00:00:00:00:09 dev fx-net dst 198.51.100.77 self"},
		"datagrams tracked again":         {"nft flush table inet " + table, "udp dport 4789 notrack"},
		"table deleted":                   {"nft delete table inet " + table, "udp dport 4789 notrack"},
		"chain deleted":                   {"nft delete chain inet " + table + " out", "udp dport 4789 notrack"},
		"leftover table": {"nft add table inet fairlead-udp-4791",
			"nft delete table inet fairlead-udp-4791"},
		"leftover tunnel": {"ip link add fx-old type vxlan id 7 dstport 4789; ip link set fx-old alias fairlead:old",
			"ip link del fx-old"},
	} {
		t.Run(name, func(t *testing.T) {
			f := fabric.New(t, fabric.Options{Hosts: 2})
			n := network(f, true)
			addrs := everywhere(t, f, n)
			know(&n, addrs)
			everywhere(t, f, n)
			h := f.Hosts[0]
			sh(t, h.Do, c.damage)
			ops, err := h.Engine.Verify(t.Context())
			if err != nil || !strings.Contains(plan.Text(ops), c.want) {
				t.Errorf("Verify does not list %q: %v\n%s", c.want, err, plan.Text(ops))
			}
			if _, err := h.Engine.Heal(t.Context()); err != nil {
				t.Fatal(err)
			}
			undrifted(t, f)
			sh(t, h.Do, "conntrack -F 2>&1")
			reach(t, f, addrs)
			noTrack(t, h, model.PortVXLAN)
		})
	}
}

// TestChangeRunningOverlay changes properties that require a new tunnel.
func TestChangeRunningOverlay(t *testing.T) {
	f := fabric.New(t, fabric.Options{Hosts: 2, Switches: 2})
	n := network(f, true)
	addrs := everywhere(t, f, n)
	reach(t, f, addrs)
	n.Overlay.VNI = 4242
	everywhere(t, f, n)
	reach(t, f, addrs)
	n.Overlay.Port = 4790
	know(&n, addrs)
	everywhere(t, f, n)
	reach(t, f, addrs)
	for i, h := range f.Hosts {
		n.Overlay.Peers[i].Address = h.Address(1, false)
	}
	everywhere(t, f, n)
	reach(t, f, addrs)
	n.Overlay.Underlays = []string{fabric.Underlay(1)}
	everywhere(t, f, n)
	reach(t, f, addrs)
	undrifted(t, f)
}

// TestManySandboxes configures a thousand sandboxes of another host.
func TestManySandboxes(t *testing.T) {
	f := fabric.New(t, fabric.Options{Hosts: 2})
	h := f.Hosts[0]
	n := network(f, true)
	n.Subnets = []model.Subnet{{Prefix: prefix("10.16.0.0/12")}, subnets[1]}
	n.Overlay.Peers[0].Ranges = []netip.Prefix{prefix("10.16.0.0/16"), n.Overlay.Peers[0].Ranges[1]}
	n.Overlay.Peers[1].Ranges = []netip.Prefix{prefix("10.17.0.0/16"), n.Overlay.Peers[1].Ranges[1]}
	for i := range 1000 {
		n.Overlay.Peers[1].Endpoints = append(n.Overlay.Peers[1].Endpoints, model.PeerEndpoint{Addresses: []netip.Addr{
			netip.AddrFrom4([4]byte{10, 17, 1 + byte(i>>8), byte(i)}),
			netip.AddrFrom16([16]byte{0xfd, 0, 0, 9, 8: 1, 14: byte(i >> 8), 15: byte(i)})}})
	}
	set(t, h, state(h, n, "box1"))
	if ops, err := h.Engine.Verify(t.Context()); err != nil || len(ops) != 0 {
		t.Errorf("differs from the desired state: %v\n%s", err, plan.Text(ops))
	}
	sh(t, h.Do, "ip link del fx-net; ip neigh flush dev fl-net nud permanent")
	if _, err := h.Engine.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ops, err := h.Engine.Verify(t.Context()); err != nil || len(ops) != 0 {
		t.Errorf("differs from the desired state: %v\n%s", err, plan.Text(ops))
	}
}

// TestUnderlayDeleted deletes the link that the overlay uses.
func TestUnderlayDeleted(t *testing.T) {
	f := fabric.New(t, fabric.Options{Hosts: 2})
	h := f.Hosts[0]
	n := network(f, true)
	n.Overlay.Underlays = []string{fabric.Underlay(0)}
	set(t, h, state(h, n, "box1"))
	sh(t, h.Do, "ip link del under0")
	if _, err := h.Engine.Heal(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "peer 198.51.100.1: no route to it") {
		t.Errorf("the error is %v", err)
	}
	if err := h.Engine.TearDown(t.Context()); err != nil {
		t.Error(err)
	}
	if left := sh(t, h.Do, "ip -br link; nft list ruleset; ip neigh"); strings.Contains(left, "net") ||
		strings.Contains(left, "box1") {
		t.Errorf("left over:\n%s", left)
	}
}
