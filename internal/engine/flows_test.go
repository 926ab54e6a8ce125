package engine_test

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
)

// flows lists the conntrack entries of the server host: for each flow its
// ports, the destination that the client chose, and the address that answers.
func flows(t *testing.T, w *topology.World) []string {
	t.Helper()
	parts := regexp.MustCompile(`^(tcp|udp).*? src=\S+ dst=(\S+) sport=(\d+) dport=(\d+).* src=(\S+) dst=`)
	var list []string
	for _, family := range []string{"ipv4", "ipv6"} {
		for line := range strings.Lines(onServer(t, w, "conntrack -L -f "+family+" 2>/dev/null")) {
			if m := parts.FindStringSubmatch(line); m != nil {
				list = append(list, m[1]+" from "+m[3]+" to "+m[2]+" "+m[4]+" answered by "+m[5])
			}
		}
	}
	return list
}

// TestStaleUDPFlowsFollowThePublish changes a publish while clients keep sending
// from the same port. They must reach the new endpoint, and all other flows must
// stay unchanged.
func TestStaleUDPFlowsFollowThePublish(t *testing.T) {
	w := world(t)
	s := dual(t, w, model.DriverBridge, "web", "app")
	// Conntrack watches from the start, as on any host with a firewall.
	onServer(t, w,
		"nft 'add table inet probe; add chain inet probe raw { type filter hook prerouting priority 0; }; add rule inet probe raw ct state new counter';"+
			" ip addr add 198.51.100.3/24 dev wire0")
	mustSet(t, w, s)
	serve(t, in(w, "web"), "web", ":80")
	serve(t, in(w, "app"), "app", ":80")
	serve(t, w.DoServer, "host4", "198.51.100.2:9000")
	serve(t, w.DoServer, "host6", "[2001:db8:1::2]:9000")
	serve(t, w.DoServer, "second", "198.51.100.3:9000")
	serve(t, w.DoServer, "port", "198.51.100.2:9001")
	var client []talk
	at := []string{"198.51.100.2:9000", "[2001:db8:1::2]:9000", "198.51.100.3:9000", "198.51.100.2:9001"}
	for i, name := range []string{"host4", "host6", "second", "port"} {
		client = append(client, dial(t, w.DoClient, model.UDP, at[i]))
		client[i].hears(name)
	}
	tcp := dial(t, w.DoClient, model.TCP, "198.51.100.2:9001")
	tcp.hears("port")

	before := flows(t, w)
	only := model.Publish{Endpoint: "web", Via: model.ViaNAT, Proto: model.UDP,
		HostPorts: model.Port(9000), Ports: model.Port(80), HostAddr: netip.MustParseAddr("198.51.100.2")}
	s.Publishes = []model.Publish{only}
	// The port is still in use by another program.
	_, err := w.Engine.Set(t.Context(), s)
	if err == nil {
		t.Error("Set published a port that another program uses")
	}
	if got := flows(t, w); !slices.Equal(sorted(got), sorted(before)) {
		t.Errorf("a publish that failed changed flows:\n%s\nbefore:\n%s", strings.Join(got, "\n"),
			strings.Join(before, "\n"))
	}
	s.Publishes[0].HostPorts = model.Port(9002)
	lost := dial(t, w.DoClient, model.UDP, "198.51.100.2:9002")
	if got, err := lost.ask(); err == nil {
		t.Fatalf("no program listens, and yet %q answers", got)
	}
	other := dial(t, w.DoClient, model.UDP, "198.51.100.3:9002")
	other.ask()
	before = flows(t, w)
	mustSet(t, w, s)
	lost.hears("web")
	gone := slices.DeleteFunc(slices.Clone(before), func(f string) bool { return slices.Contains(flows(t, w), f) })
	if len(gone) != 1 || !strings.Contains(gone[0], "to 198.51.100.2 9002") {
		t.Errorf("the publish ended the flows:\n%s", strings.Join(gone, "\n"))
	}

	// The endpoint changes: the same client port reaches the other one.
	s.Publishes[0].Endpoint = "app"
	mustSet(t, w, s)
	lost.hears("app")
	// The endpoint moves to another address.
	s.Endpoints[1].Addresses = []netip.Addr{netip.MustParseAddr("172.30.0.50"), netip.MustParseAddr("fd00:30::50")}
	mustSet(t, w, s)
	lost.hears("app")
	// The publish is removed: no answer arrives.
	s.Publishes = nil
	mustSet(t, w, s)
	if got, err := lost.ask(); err == nil {
		t.Errorf("after the publish is gone %q still answers", got)
	}
	for i, name := range []string{"host4", "host6", "second", "port"} {
		client[i].hears(name)
	}
	tcp.hears("port")
}

// TestUnpublishEndsFlows checks that only the flows of the removed publish end:
// the host has no socket for them and refuses the next packet.
func TestUnpublishEndsFlows(t *testing.T) {
	for _, via := range direct {
		t.Run(string(via), func(t *testing.T) {
			w := world(t)
			s := dual(t, w, model.DriverBridge, "web")
			for _, proto := range protos {
				publish(&s, "web", via, proto, 8000, 80)
				publish(&s, "web", via, proto, 8001, 80)
			}
			keep := s
			keep.Publishes = slices.DeleteFunc(slices.Clone(s.Publishes),
				func(p model.Publish) bool { return p.HostPorts.First == 8000 })
			mustSet(t, w, s)
			serve(t, in(w, "web"), "web", ":80")
			going, staying := dialAll(t, w.DoClient, server(8000)), dialAll(t, w.DoClient, server(8001))
			hostsGoing, hostsStaying := dialAll(t, w.DoServer, everywhere(8000)),
				dialAll(t, w.DoServer, everywhere(8001))
			for _, talk := range slices.Concat(going, staying, hostsGoing, hostsStaying) {
				talk.hears("web")
			}
			mustSet(t, w, keep)
			if via == model.ViaEBPF {
				remembers(t, w, len(staying))
			}
			for _, talk := range going {
				talk.isRefused()
			}
			for _, talk := range hostsGoing {
				talk.endsBy(via)
			}
			for _, talk := range slices.Concat(staying, hostsStaying) {
				talk.hears("web")
			}
		})
	}
}

// TestWiderRangeKeepsConnections widens a range at both ends. Connections to
// ports whose mapping did not change continue, for remote and local clients.
func TestWiderRangeKeepsConnections(t *testing.T) {
	w := world(t)
	s := dual(t, w, model.DriverBridge, "web")
	ranged := func(first, last, to uint16) (all model.State) {
		all = s
		for _, proto := range protos {
			all.Publishes = append(slices.Clone(all.Publishes),
				model.Publish{Endpoint: "web", Via: model.ViaEBPF, Proto: proto,
					HostPorts: model.PortRange{First: first, Last: last},
					Ports:     model.PortRange{First: to, Last: to + (last - first)}})
		}
		return all
	}
	mustSet(t, w, ranged(8001, 8002, 81))
	serve(t, in(w, "web"), "web", ":82")
	remote, hosts := dialAll(t, w.DoClient, server(8002)), dialAll(t, w.DoServer, everywhere(8002))
	for _, talk := range slices.Concat(remote, hosts) {
		talk.hears("web")
	}
	mustSet(t, w, ranged(8000, 8004, 80))
	for _, talk := range slices.Concat(remote, hosts) {
		talk.hears("web")
	}
	mustSet(t, w, ranged(8000, 8004, 90))
	for _, talk := range hosts {
		talk.hasEnded()
	}
	for _, talk := range remote {
		if got, err := talk.ask(); err == nil {
			t.Errorf("%s %s answers %q although the range maps to other ports", talk.conn.RemoteAddr().Network(),
				talk.conn.RemoteAddr(), got)
		}
	}
}

// TestMovedPublishEndsConnections publishes the same host port from another
// endpoint. TCP connections end, and clients that continue to send over UDP
// reach the new endpoint. With mode ebpf the UDP sockets of local clients end.
func TestMovedPublishEndsConnections(t *testing.T) {
	for _, via := range direct {
		t.Run(string(via), func(t *testing.T) {
			w := world(t)
			s := dual(t, w, model.DriverBridge, "web", "app")
			for _, proto := range protos {
				publish(&s, "web", via, proto, 8000, 80)
			}
			mustSet(t, w, s)
			serve(t, in(w, "web"), "web", ":80")
			serve(t, in(w, "app"), "app", ":80")
			talks, hosts := dialAll(t, w.DoClient, server(8000)), dialAll(t, w.DoServer, everywhere(8000))
			for _, talk := range slices.Concat(talks, hosts) {
				talk.hears("web")
			}
			for i := range s.Publishes {
				s.Publishes[i].Endpoint = "app"
			}
			mustSet(t, w, s)
			if via == model.ViaEBPF {
				for _, talk := range hosts {
					talk.hasEnded()
				}
			} else {
				talks = append(talks, hosts...)
			}
			for _, talk := range talks {
				if talk.conn.RemoteAddr().Network() == "tcp" {
					talk.isRefused()
				} else {
					talk.hears("app")
				}
			}
			for _, talk := range slices.Concat(dialAll(t, w.DoClient, server(8000)),
				dialAll(t, w.DoServer, everywhere(8000))) {
				talk.hears("app")
			}
		})
	}
}

// remembers fails the test unless the eBPF maps have n flows.
func remembers(t *testing.T, w *topology.World, n int) {
	t.Helper()
	if got, err := w.EBPFFlows(); err != nil || got != n {
		t.Errorf("the eBPF maps have %d flows, %v; want %d", got, err, n)
	}
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }
