package overlay_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"fairlead/internal/model"
	"fairlead/test/fabric"
	"fairlead/test/place"
)

// transferSize returns the number of bytes that TestMTU sends in each direction: FAIRLEAD_TRANSFER,
// or 8 MiB.
func transferSize(t *testing.T) int {
	t.Helper()
	text := os.Getenv("FAIRLEAD_TRANSFER")
	if text == "" {
		return 8 << 20
	}
	bytes, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("FAIRLEAD_TRANSFER: %v", err)
	}
	return bytes
}

// TestMTU sets no MTU, and sends data in both directions over underlays of several MTUs.
func TestMTU(t *testing.T) {
	for _, c := range []struct {
		underlay int
		v4, v6   bool // v4: IPv4 outside; v6: IPv6 inside, besides IPv4
		want     int
	}{
		{1500, true, true, 1450},
		{1500, false, true, 1430},
		{9000, true, true, 8950},
		{9000, false, true, 8930},
		{1280, false, false, 1210},
		{1280, true, false, 1230},
		{65535, true, true, 65485},
	} {
		t.Run(fmt.Sprintf("underlay %d IPv4 %v", c.underlay, c.v4), func(t *testing.T) {
			f := fabric.New(t, fabric.Options{Hosts: 2, MTU: c.underlay})
			n := network(f, c.v4)
			if !c.v6 {
				n.Subnets = n.Subnets[:1]
				for i := range n.Overlay.Peers {
					n.Overlay.Peers[i].Ranges = n.Overlay.Peers[i].Ranges[:1]
				}
			}
			addrs := everywhere(t, f, n)
			for i, h := range f.Hosts {
				for _, on := range []struct {
					in   place.Place
					link string
				}{{h.Do, "fx-net"}, {h.Do, "fl-net"}, {h.Do, "fv-" + box(i)}, {h.In(box(i)), "eth0"}} {
					if got := sh(t, on.in, "ip -o link show "+on.link); !strings.Contains(got,
						fmt.Sprintf(" mtu %d ", c.want)) {
						t.Errorf("want an MTU of %d: %s", c.want, got)
					}
				}
				serve(t, h.In(box(i)), box(i))
			}
			bytes := transferSize(t)
			for _, a := range addrs[1] {
				transfer(t, f.Hosts[0].In("box1"), a, bytes)
			}
			for _, a := range addrs[0] {
				transfer(t, f.Hosts[1].In("box2"), a, bytes)
			}
			undrifted(t, f)
		})
	}
}

// TestUnderlayMTUGrows increases the MTU of the hosts' links. The network must get it with the next
// Heal.
func TestUnderlayMTUGrows(t *testing.T) {
	f := fabric.New(t, fabric.Options{Hosts: 2})
	addrs := everywhere(t, f, network(f, true))
	for i, h := range f.Hosts {
		sh(t, h.Do, "ip link set under0 mtu 9000")
		sh(t, f.Switches[0].Do, "ip link set switch mtu 9000; ip link set "+fabric.Port(i+1)+" mtu 9000")
		if _, err := h.Engine.Heal(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := sh(t, h.In(box(i)), "ip -o link show eth0"); !strings.Contains(got, " mtu 8950 ") {
			t.Errorf("want an MTU of 8950: %s", got)
		}
	}
	undrifted(t, f)
	reach(t, f, addrs)
}

func TestRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		mtu    int // MTU of the underlay
		v6     bool
		before string // on the host
		taken  string // a UDP address there
		change func(*model.Network)
		want   string
	}{
		"an IPv6 subnet with a small MTU": {mtu: 1280, v6: true,
			want: "subnet fd00:9::/64: the underlay carries packets of 1280 bytes, of which the overlay leaves 1210, and IPv6 needs 1280: raise the underlay's mtu to 1350, or leave the IPv6 subnet out"},
		"an MTU that is too large": {change: func(n *model.Network) { n.MTU = 1500 },
			want: "the largest that fits is 1450; leave mtu out to get it, or raise the underlay's to 1550"},
		"a foreign VXLAN of that VNI and port": {before: "ip link add vxlan99 type vxlan id 42 dstport 4789",
			want: "link vxlan99, which is not Fairlead's, already has VNI 42 on UDP port 4789: give the overlay another vni or port, on all hosts"},
		"a foreign link of that name": {before: "ip link add fx-net type bridge",
			want: "a link of that name exists and is not Fairlead's"},
		"a port that another program has": {taken: "0.0.0.0:4789",
			want: "UDP port 4789 is in use by another program: `ss -lunp sport = :4789` names it"},
		"a peer without a route": {change: func(n *model.Network) { n.Overlay.Peers[1].Address = addr("203.0.113.9") },
			want: "peer 203.0.113.9: no route to it"},
		"an underlay that does not exist": {change: func(n *model.Network) { n.Overlay.Underlays = []string{"ib0"} },
			want: "underlay ib0: the host has no such link or address"},
		"an underlay that is down": {before: "ip link add eth9 type bridge",
			change: func(n *model.Network) { n.Overlay.Underlays = []string{"eth9"} },
			want:   "underlay eth9: the link is down: ip link set eth9 up"},
		"an underlay of the other family":    {before: "ip -4 addr flush dev lo; ip link add eth9 type bridge; ip link set eth9 up; ip addr add 2001:db8:9::1/64 dev eth9", change: func(n *model.Network) { n.Overlay.Underlays = []string{"eth9"} }, want: "underlay eth9: the link has no IPv4 address"},
		"another host's address as underlay": {change: func(n *model.Network) { n.Overlay.Underlays = []string{"198.51.100.2"} }, want: "underlay 198.51.100.2: this host does not have the address"},
		"hosts without a range": {change: func(n *model.Network) { n.Overlay.Peers[0].Ranges = nil },
			want: "every host of an overlay needs its own part of the subnet"},
	} {
		t.Run(name, func(t *testing.T) {
			f := fabric.New(t, fabric.Options{Hosts: 2, MTU: c.mtu})
			h := f.Hosts[0]
			if c.before != "" {
				sh(t, h.Do, c.before)
			}
			if c.taken != "" {
				take(t, h.Do, c.taken)
			}
			n := network(f, !c.v6)
			if c.change != nil {
				c.change(&n)
			}
			before := place.Snapshot(t, h.Do)
			_, err := h.Engine.Set(t.Context(), state(h, n, "box1"))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v; want %q", err, c.want)
			}
			unchanged(t, h, before)
		})
	}
}

// take binds a UDP port until the test ends.
func take(t testing.TB, in place.Place, at string) {
	t.Helper()
	conn, err := place.ListenPacket(in, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
}

// TestTwoNetworksWithOneVNI configures two networks with the same VNI.
func TestTwoNetworksWithOneVNI(t *testing.T) {
	f := fabric.New(t, fabric.Options{Hosts: 2})
	h, n := f.Hosts[0], network(f, true)
	other := n
	other.Name = "other"
	other.Subnets = []model.Subnet{{Prefix: prefix("10.10.0.0/24"), Range: prefix("10.10.0.0/25")}}
	other.Overlay.Peers = []model.Peer{{Address: n.Overlay.Peers[1].Address}}
	s := state(h, n, "box1")
	s.Networks = append(s.Networks, other)
	before := place.Snapshot(t, h.Do)
	if _, err := h.Engine.Set(t.Context(), s); err == nil ||
		!strings.Contains(err.Error(), "link fx-net, of network net, already has VNI 42 on UDP port 4789") {
		t.Errorf("the error is %v", err)
	}
	s.Networks[1].Overlay.VNI = 43
	set(t, h, s)
	unchanged(t, h, before)
}

// TestPortIsSetExplicitly checks that the port does not depend on the kernel's default, as it did
// for the VXLAN link of the FOSDEM post.
func TestPortIsSetExplicitly(t *testing.T) {
	for want, port := range map[string]uint16{" dstport 4789 ": 0, " dstport 8472 ": 8472} {
		f := fabric.New(t, fabric.Options{Hosts: 2})
		n := network(f, true)
		n.Overlay.Port = port
		addrs := everywhere(t, f, n)
		if got := sh(t, f.Hosts[0].Do, "ip -d link show fx-net"); !strings.Contains(got, want) {
			t.Errorf("want%s: %s", want, got)
		}
		reach(t, f, addrs)
	}
}
