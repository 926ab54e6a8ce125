package suite

import (
	"slices"
	"time"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/model"
)

// HandMasquerade is a bridge made by hand, whose sandboxes reach other hosts through one
// masquerade rule.
var HandMasquerade = Peer{Name: "hand-masquerade", ByHand: true}

// outboundPaths returns the paths that exist for connections that a sandbox opens only.
// A path that translates these connections in another manner than nftables does belongs
// here, and its proof in rig/outbound.go.
func outboundPaths() []Path {
	return []Path{
		{Name: "outbound-ebpf", About: "bridge, with the connections to other hosts translated by eBPF programs",
			Driver: model.DriverBridge, Outbound: model.OutboundEBPF},
		{Name: "hand-masquerade", About: "a bridge made with ip and one masquerade rule made with nft, by hand",
			Driver: model.DriverBridge, Peer: HandMasquerade},
	}
}

// outbound returns the suite about connections that a sandbox opens to a host in the LAN.
func outbound() Suite {
	return Suite{
		Name:     "outbound",
		Question: "How much does each path cost for the connections that a sandbox opens to another host?",
		Baseline: "host",
		// Each of Fairlead's paths is followed by the same path made by others.
		Paths: []string{"host", "bridge", "outbound-ebpf", "hand-masquerade", "cni-bridge", "routed", "hop-veth",
			"macvlan", "hand-macvlan", "ipvlan", "vxlan", "device", "slirp4netns", "pasta"},
		IfInstalled: []string{"docker:bridge"},
		Clients:     []result.Client{result.Outbound},
		Workloads:   []Workload{bulk, bulkDown, rr, crr, pps, udpRR, udpQuery, ports50k},
		Rounds:      10, Duration: 400 * time.Millisecond, Warmup: 100 * time.Millisecond,
	}
}

// peerSuite returns the suite about connections between sandboxes of one host: of the
// same network, and of different networks.
func peerSuite() Suite {
	return Suite{
		Name: "peer",
		Question: "How much does each path cost between two sandboxes of a host, in one network, between networks and " +
			"through published ports?",
		Baseline: "host",
		Paths: []string{"host", "bridge", "filter-on", "hop-bridge", "routed", "hop-veth", "macvlan", "ipvlan", "vxlan",
			"ebpf", "nat", "proxy", "docker-proxy", "hand-dnat", "cni-bridge"},
		IfInstalled: []string{"docker:bridge", "docker:publish"},
		Clients:     []result.Client{result.Peer, result.OtherNetwork},
		Workloads:   []Workload{bulk, rr, crr, pps, udpRR, udpQuery},
		Rounds:      10, Duration: 400 * time.Millisecond, Warmup: 100 * time.Millisecond,
	}
}

// The workloads of what a sandbox opens: data from the host, as in a download; one question
// per socket; and more short connections than a host has source ports by default, each
// closed by the client.
var (
	bulkDown = Workload{Name: "tcp-bulk-down",
		Spec: load.Spec{Workload: load.TCPBulk, Streams: 4, Direction: load.Down}}
	udpQuery = Workload{Name: result.UDPQuery, Spec: load.Spec{Workload: load.UDPQuery}}
	ports50k = Workload{Name: result.PortExhaustion, Fresh: true, Spec: load.Spec{Workload: load.TCPCRR,
		Close: load.ClientFIN, Attempts: 50_000, Duration: 30 * time.Second}}
)

// Shorten limits the runs of workloads that have a duration of their own.
func (s *Suite) Shorten(to time.Duration) {
	s.Workloads = slices.Clone(s.Workloads)
	for i := range s.Workloads {
		spec := &s.Workloads[i].Spec
		spec.Duration = min(spec.Duration, to)
	}
}

// opens reports whether the laboratory measures connections that the workload's sandbox
// opens to the client host on this path: the path must have a way there, and not differ
// from another path only in how clients reach the workload.
func (p Path) opens() bool {
	t := p.Driver.Traits()
	switch {
	case p.Gateways > 0, p.Virtual, p.Plane != "", p.Peer.Extends, p.Peer.Gateway, p.Others > 0, p.Wires > 1,
		p.Clustered:
		return false
	case p.Peer.InDocker:
		return p.Direct || p.Plain == "docker:host"
	case p.Peer == HandDNAT, p.Peer == HandHops && t.Bridge, p.Peer == HandMade && t.Overlay:
		return false // the sandbox has a route to the client host, but no NAT for it
	}
	return p.Via == "" || p.Via == model.ViaNAT && p.Direct
}

// crosses reports whether a sandbox of another network on the server host reaches the
// workload. A bridge is isolated from other networks, so it needs a published port.
func (p Path) crosses() bool {
	t := p.Driver.Traits()
	switch {
	case p.OnWire(), p.Plane != "", p.Peer.Balances, p.Peer.Gateway, t.NoLink && !t.HostNetns:
		return false
	case p.Peer.InDocker:
		return !p.Direct || !t.Bridge
	case p.ByOthers():
		return p.Peer == HandDNAT
	}
	return p.Via != "" || p.Peer.Extends || !t.Bridge
}

// neighbors reports whether another sandbox of the same network reaches the workload, if
// other programs make the path or the sandboxes are on the wire.
func (p Path) neighbors() bool {
	switch t := p.Driver.Traits(); {
	case p.Peer == HandHops:
		return true
	case p.Peer == CNI:
		return t.Bridge
	case p.Peer.Name != "":
		return false
	}
	return !p.Driver.Traits().MovesDevice && !p.Clustered && p.Wires < 2
}

// Misanswers returns why a workload cannot be measured on a path that the client reaches
// and that supports the workload; "" if it can.
func (p Path) Misanswers(c result.Client, w Workload) string {
	proxied := p.Peer == DockerProxy || p.Peer == Docker && !p.Direct && !p.NoProxy && p.Driver.Traits().Bridge
	if proxied && (c == result.Peer || c == result.OtherNetwork) && isUDP(w.Spec.Workload) {
		return "docker-proxy answers datagrams of sandboxes from its network's address on the host, and not from the " +
			"one that they were sent to, so clients discard the answers"
	}
	if p.Outbound == model.OutboundEBPF && (w.Name == result.UDPQuery || w.Name == result.PortExhaustion) {
		return "the eBPF programs have 27,304 ports for one destination, and the kernel forwards the sockets beyond them"
	}
	if p.Peer == Pasta && c == result.Outbound && w.Spec.Workload == load.TCPCRR && w.Spec.Close != load.ClientFIN {
		return "pasta waits for acknowledgements that these connections delay; those of " + result.PortExhaustion +
			" do not"
	}
	return ""
}
