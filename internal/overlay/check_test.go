package overlay_test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/child"
	"fairlead/internal/model"
	"fairlead/internal/overlay"
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
	"fairlead/test/fabric"
	"fairlead/test/shell"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{proxy.Role: proxy.Main})
	os.Exit(m.Run())
}

// network is an overlay of two hosts.
func network(f *fabric.Fabric, v4 bool) model.Network {
	prefix := netip.MustParsePrefix
	n := model.Network{Name: "net", Driver: model.DriverVXLAN, Overlay: model.Overlay{VNI: 42},
		Subnets: []model.Subnet{{Prefix: prefix("10.9.0.0/24")}, {Prefix: prefix("fd00:9::/64")}}}
	for i, h := range f.Hosts {
		n.Overlay.Peers = append(n.Overlay.Peers, model.Peer{Address: h.Address(0, v4), Ranges: []netip.Prefix{
			prefix(fmt.Sprintf("10.9.0.%d/25", 128*i)), prefix(fmt.Sprintf("fd00:9::%d00/120", i+1))}})
	}
	return n
}

// build sets up the overlay, with a responder on each host, and returns the
// paths from the first one to the other.
func build(t *testing.T, f *fabric.Fabric, v4, respond bool) []overlay.Target {
	t.Helper()
	var targets []overlay.Target
	for i, h := range f.Hosts {
		full, err := h.Engine.Set(t.Context(), model.State{Networks: []model.Network{network(f, v4)}})
		if err != nil {
			t.Fatal(err)
		}
		n := full.Networks[0]
		facts := plan.Facts{}
		if facts.Links, err = h.Net().Links(n.Asks()); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			targets = overlay.Targets(n, facts)
		}
		for _, s := range n.Subnets {
			if respond {
				answerChecks(t, h, s.HostAddress())
			}
		}
	}
	for i := range targets {
		targets[i].Enter = f.Hosts[0].Do
	}
	return targets
}

func answerChecks(t *testing.T, h *fabric.Host, own netip.Addr) {
	t.Helper()
	if err := h.Do(func() error {
		r, err := overlay.Respond(own)
		if err == nil {
			t.Cleanup(func() {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func sh(t *testing.T, h interface{ Do(func() error) error }, line string) {
	t.Helper()
	shell.Run(t, h.Do, line)
}

// hop adds a rule to the switch for packets from a host.
func hop(t *testing.T, f *fabric.Fabric, host int, rule string) {
	t.Helper()
	table := fmt.Sprint("netdev from", host)
	sh(t, f.Switches[0],
		fmt.Sprintf("nft 'add table %[1]s; add chain %[1]s in { type filter hook ingress device %[2]s priority 0; }; add rule %[1]s in %[3]s'",
			table, fabric.Port(host), rule))
}

func TestHealthyPaths(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		v4  bool
		mtu int
	}{{true, 1500}, {false, 1500}, {true, 9000}} {
		f := fabric.New(t, fabric.Options{Hosts: 2, MTU: c.mtu})
		targets := build(t, f, c.v4, true)
		if len(targets) != 2 || targets[0].Underlay != fabric.Underlay(0) {
			t.Fatalf("Targets returns %+v", targets)
		}
		for _, target := range targets {
			r, err := target.Check(t.Context())
			if found := r.Findings(); err != nil || len(found) != 0 || r.There != r.Target.MTU ||
				r.Back != r.Target.MTU {
				t.Errorf("%+v: %v %q", r, err, found)
			}
		}
	}
}

// TestFaults injects faults into the wire. Offsets are of the outer IPv4 packet, in bits:
// headers of IP 20, UDP 8, VXLAN 8 and Ethernet 14 bytes, then IP 20 and UDP 8
// again.
func TestFaults(t *testing.T) {
	const unsummed = "@nh,472,8 17 @nh,608,16 != 0 drop"
	for _, c := range []struct {
		name  string
		rules [2]string // for packets from each host
		want  string
	}{
		{"a black hole to the peer", [2]string{"meta length > 1400 drop", ""},
			"packets of the network's mtu, 1450 bytes, are lost on the path to 10.9.0.128; the largest that passes has 1350 bytes" +
				": a hop between the hosts carries 100 bytes less than their links do: raise its mtu, or set the network's to 1350 on all hosts"},
		{"a black hole from the peer", [2]string{"", "meta length > 1237 drop"},
			"packets of the network's mtu, 1450 bytes, are lost on the path back from 10.9.0.128; the largest that passes has 1187 bytes" +
				": a hop between the hosts carries 263 bytes less than their links do: raise its mtu, or set the network's to 1187 on all hosts"},
		{"a card that loses segments", [2]string{"meta length > 1500 drop", ""},
			"packets of all sizes reach 10.9.0.128, but a TCP stream does not"},
		{"a card that spoils checksums", [2]string{unsummed, unsummed},
			"only datagrams without a checksum reach 10.9.0.128 and return: checksums are corrupted on the path" +
				": turn off offloads, on both hosts: ethtool -K under0 tx-checksum-ip-generic off tx-udp_tnl-csum-segmentation off; or use another port for the overlay"},
		{"a card that spoils bytes", [2]string{"@nh,1024,8 set 0x5a", ""},
			"data is corrupted on the path to 10.9.0.128 and back" +
				": turn off offloads, on both hosts: ethtool -K under0 tx-checksum-ip-generic off"},
		{"a firewall", [2]string{"udp dport 4789 drop", ""},
			"10.9.0.128 does not answer through the overlay" +
				": check that the network is up on 198.51.100.2, with the same vni, port, and that firewalls between the hosts accept UDP port 4789 in both directions"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := fabric.New(t, fabric.Options{Hosts: 2})
			targets := build(t, f, true, true)
			for i, rule := range c.rules {
				if rule != "" {
					hop(t, f, i+1, rule)
				}
			}
			r, err := targets[0].Check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			found := r.Findings()
			if len(found) != 1 || !strings.Contains(found[0].String(), c.want) {
				t.Errorf("%+v: findings %v; want %s", r, found, c.want)
			}
		})
	}
}

// TestDifferentMTUs checks hosts with different MTUs of the network: they answer
// packets that are larger than their own MTU, but their sandboxes do not get such
// packets.
func TestDifferentMTUs(t *testing.T) {
	f := fabric.New(t, fabric.Options{Hosts: 2})
	targets := build(t, f, true, false)
	targets = slices.DeleteFunc(targets, func(g overlay.Target) bool { return g.Peer.Is6() })
	if err := f.Hosts[1].Do(func() error {
		r, err := overlay.Respond(targets[0].Peer)
		if err == nil {
			r.SetMTU(targets[0].MTU - 50)
			t.Cleanup(func() { r.Close() })
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	r, err := targets[0].Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := r.Findings()
	if want := "the network's mtu is 1450 on this host and 1400 on "; len(found) != 1 ||
		!strings.HasPrefix(found[0].Problem, want) || !strings.Contains(found[0].Advice, "--mtu 1400") {
		t.Errorf("%+v: findings %v; want %s", r, found, want)
	}
}

func TestNoAnswer(t *testing.T) {
	t.Parallel()
	f := fabric.New(t, fabric.Options{Hosts: 2})
	for _, target := range build(t, f, true, false) {
		r, err := target.Check(t.Context())
		if found := r.Findings(); err != nil || len(found) != 1 ||
			!strings.Contains(found[0].Problem, "does not answer") {
			t.Errorf("%v %v", err, found)
		}
	}
}

// TestHopWithVLANAllowance checks a hop that is a bridge: it forwards frames that are
// four bytes larger than its MTU, and the advice does not count these bytes.
func TestHopWithVLANAllowance(t *testing.T) {
	t.Parallel()
	f := fabric.New(t, fabric.Options{Hosts: 2})
	targets := build(t, f, true, true)
	sh(t, f.Switches[0], "ip link set "+fabric.Port(2)+" mtu 1400")
	r, err := targets[0].Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := r.Findings()
	if r.Back != 1354 || len(found) != 1 ||
		!strings.Contains(found[0].Advice, "set the network's to 1350 on all hosts") {
		t.Errorf("%+v: findings %v; want the advice 1350", r, found)
	}
}
