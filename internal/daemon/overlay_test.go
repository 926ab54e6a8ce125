package daemon_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/kernel/counter"
	"fairlead/internal/model"
	"fairlead/test/fabric"
)

// TestCheckNetwork runs a daemon on each of two hosts, and blocks the path between
// them.
func TestCheckNetwork(t *testing.T) {
	f := fabric.New(t, fabric.Options{Hosts: 2})
	n := model.Network{Name: "net", Driver: model.DriverVXLAN,
		Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("10.9.0.0/24")}}, Overlay: model.Overlay{VNI: 42}}
	for i, h := range f.Hosts {
		n.Overlay.Peers = append(n.Overlay.Peers,
			model.Peer{Address: h.Address(0, true),
				Ranges: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.9.0.%d/25", 128*i))}})
	}
	var worlds []*world
	for _, h := range f.Hosts {
		w := worldOf(t, h.Host).start()
		w.network(n)
		if _, err := w.CheckNetwork(t.Context(), "net"); api.CodeOf(err) != api.Conflict {
			t.Errorf("check a network without attachments: %v", err)
		}
		w.attach(api.AttachRequest{Endpoint: model.Endpoint{Network: "net", Sandbox: w.watchedSandbox().pid}})
		worlds = append(worlds, w)
	}
	w := worlds[0]
	paths, err := w.CheckNetwork(t.Context(), "net")
	if want := (api.PeerPathView{Peer: netip.MustParseAddr("10.9.0.128"),
		Remote: f.Hosts[1].Address(0, true)}); err != nil || len(paths) != 1 ||
		fmt.Sprint(paths[0]) != fmt.Sprint(want) {
		t.Errorf("the paths are %+v, %v; want %+v", paths, err, want)
	}
	w.sh("nft 'add table inet probe; add chain inet probe out { type filter hook output priority 0; }; add rule inet probe out udp dport 4789 meta length > 1300 drop'")
	if paths, err = w.CheckNetwork(t.Context(), "net"); err != nil || len(paths) != 1 ||
		!strings.Contains(fmt.Sprint(paths[0].Problems), "the largest that passes has 1250") {
		t.Errorf("the paths are %+v, %v", paths, err)
	}
	for _, hook := range []string{"input", "output"} {
		w.sh(fmt.Sprintf("nft 'flush table inet probe; add chain inet probe %[1]s { type filter hook %[1]s priority 0; }; add rule inet probe %[1]s udp dport 4789 drop'", hook))
		paths, err = w.CheckNetwork(t.Context(), "net")
		if err != nil || len(paths) != 1 || !strings.Contains(fmt.Sprint(paths[0].Problems), "of chain "+hook+
			" (inet probe) drops UDP port 4789") {
			t.Errorf("a rule at %s drops the overlay, and the paths are %+v, %v", hook, paths, err)
		}
	}
	w.sh("nft delete table inet probe")
	worlds[1].stop()
	if paths, err = w.CheckNetwork(t.Context(), "net"); err != nil || len(paths) != 1 ||
		!strings.Contains(fmt.Sprint(paths[0].Problems), "does not answer") {
		t.Errorf("the paths are %+v, %v", paths, err)
	}
	if _, err := w.CheckNetwork(t.Context(), "nit"); api.CodeOf(err) != api.NotFound {
		t.Errorf("check a network that does not exist: %v", err)
	}
}

// TestCountersThroughTunnel compares the counters of endpoints whose packets pass the tunnel of an overlay with the
// frames that their sandboxes have counted.
func TestCountersThroughTunnel(t *testing.T) {
	f := fabric.New(t, fabric.Options{Hosts: 2})
	n := model.Network{Name: "net", Driver: model.DriverVXLAN, Subnets: subnets("10.9.0.0/24", "fd00:9::/64"),
		Overlay: model.Overlay{VNI: 42}}
	ranges := [][]netip.Prefix{prefixes("10.9.0.0/25", "fd00:9::/65"),
		prefixes("10.9.0.128/25", "fd00:9:0:0:8000::/65")}
	for i, h := range f.Hosts {
		n.Overlay.Peers = append(n.Overlay.Peers, model.Peer{Address: h.Address(0, true), Ranges: ranges[i]})
	}
	var worlds []*world
	var boxes []watchedSandbox
	var before []counter.Traffic
	for _, h := range f.Hosts {
		w := worldOf(t, h.Host).start()
		w.network(n)
		b := w.watchedSandbox()
		w.attach(api.AttachRequest{Endpoint: model.Endpoint{Name: "box" + b.pid, Network: "net", Sandbox: b.pid}})
		b.sh(t, countFrames)
		worlds, boxes, before = append(worlds, w), append(boxes, b), append(before, w.uncounted(b))
	}
	boxes[1].echoes(t, "tcp", ":80")
	boxes[1].echoes(t, "udp", ":80")
	for _, family := range []string{"-4", "-6"} {
		text := boxes[1].sh(t, "ip -o "+family+" addr show dev eth0 scope global | awk '{print $4}'")
		to := netip.MustParsePrefix(strings.TrimSpace(text)).Addr()
		for _, proto := range []model.Proto{model.TCP, model.UDP} {
			boxes[0].do(t, func() error { return exchangeSmall(proto, netip.AddrPortFrom(to, 80)) })
		}
	}
	for i, w := range worlds {
		sent := boxes[i].frames(t).Packets
		if after := w.uncounted(boxes[i]); after != before[i] || sent.In < smallDatagrams || sent.Out < smallDatagrams {
			t.Errorf("host %d: of %+v frames, the endpoint's counters have %+v more than its sandbox has counted, and %+v before",
				i+1, sent, after, before[i])
		}
	}
}
