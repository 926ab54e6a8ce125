// Package suite defines what the laboratory can measure: the paths, the workloads,
// and the suites. A suite is a question with paths and workloads that answer it,
// and the figures that others published for it. The package builds and measures
// nothing.
package suite

import (
	"slices"
	"time"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/model"
)

// Path is a path to a workload that can be measured.
type Path struct {
	Name string
	// Plain is the name without MTU and number of ports.
	Plain string
	// About is one line for `fairlead lab list`.
	About string
	// Driver attaches the workload's sandbox; with host, the workload runs on the
	// host.
	Driver model.Driver
	// Filter is the bridge's br_netfilter setting.
	Filter model.Filter
	// Outbound says what translates the connections that the workload's sandbox opens.
	Outbound model.Outbound
	// Via is the mode that publishes the workload's ports; empty means that none
	// are published.
	Via model.Via
	// Plane is the data plane of the virtual service whose real server the
	// workload is; empty means no service.
	Plane model.Plane
	// Direct makes clients dial the sandbox's address if the driver lets them reach
	// it. If false, or if they cannot reach it, they dial the host's.
	Direct bool
	// Bare runs the workload as a plain process, without the PID, mount, UTS and
	// IPC namespaces that a container engine would give it.
	Bare bool
	// Passive makes the balancer count failures of clients' connections, in
	// addition to its checks.
	Passive bool
	// Others is the number of other published ports, services or routers.
	Others int
	// Tracked is true if conntrack follows the forwarded packets. For HandHops its
	// maker configures that.
	Tracked bool
	// Wires is how many wires carry an overlay; 0 means one.
	Wires int
	// NoProxy makes Docker publish without docker-proxy.
	NoProxy bool
	// OwnNetwork makes Docker publish from a network that was created, not from
	// its default bridge.
	OwnNetwork bool
	// Ports is how many ports the container publishes, in workloads that measure
	// its start.
	Ports int
	// MTU is that of the wires in bytes.
	MTU int
	// Family is the address family of clients, hosts and sandboxes.
	Family result.Family
	// Peer is the external program that creates the path, or a part of it.
	Peer Peer
	// Gateways is the number of gateways of a web site, 0 on paths without one.
	// Scheduler is that of the director, if there is more than one gateway.
	Gateways  int
	Scheduler model.Scheduler
	// Virtual: clients dial a virtual address that one of several hosts has.
	Virtual bool
	// Hold is the hold time of a virtual address of Fairlead.
	Hold time.Duration
	// Clustered: the network is one that the hosts derive from the records of a cluster.
	Clustered bool
}

// Peer is an external program, or a set-up by hand, that Fairlead is compared
// with. The zero value is Fairlead itself.
type Peer struct {
	// Name identifies the peer.
	Name string
	// Extends: Fairlead's engine attaches the sandbox, and the peer forwards to it.
	// If false, the engine creates nothing of the path.
	Extends bool
	// ByHand: the path is made with commands whose versions do not matter.
	ByHand bool
	// InDocker: the workload is in a container of a Docker engine.
	InDocker bool
	// PortTime is an estimate of how long the peer takes to publish one port when a
	// container starts.
	PortTime time.Duration
	// Balances: the peer distributes clients over real servers.
	Balances bool
	// TCPOnly: the peer does not carry UDP.
	TCPOnly bool
	// Gateway: the peer forwards requests over HTTP and nothing else.
	Gateway bool
	// Changes: its configuration can be changed while it serves.
	Changes bool
}

// The peers. Each has a maker of paths in the package peer.
var (
	DockerProxy = Peer{Name: "docker-proxy", Extends: true}
	HandDNAT    = Peer{Name: "hand-dnat", ByHand: true}
	// HandHops is a path made by hand that has only the hops for the path's
	// Driver, Filter and Tracked.
	HandHops = Peer{Name: "hand-hops", ByHand: true}
	// HandMade is an attachment made by hand with the same result as the path's
	// Driver.
	HandMade = Peer{Name: "hand-made", ByHand: true}
	// CNI are the reference plugins of the Container Network Interface.
	CNI         = Peer{Name: "cni"}
	Slirp4netns = Peer{Name: "slirp4netns"}
	Pasta       = Peer{Name: "pasta"}
	HAProxy     = Peer{Name: "haproxy", Extends: true, Balances: true, TCPOnly: true}
	// Docker is an engine with its own networks, DockerFairlead an engine with
	// networks of Fairlead's plugin.
	Docker         = Peer{Name: "docker", InDocker: true, PortTime: 100 * time.Millisecond}
	DockerFairlead = Peer{Name: "docker-fairlead", InDocker: true}
)

// Workload is a named load. The name starts with its kind.
type Workload struct {
	Name string
	Spec load.Spec
	// Start is the protocol of the ports of a container whose start is measured,
	// instead of a Spec.
	Start model.Proto
	// Event is what happens to one of several real servers, instead of a Spec.
	Event Event
	// Fresh: each run builds the path anew, because a run leaves connections behind.
	Fresh bool
	// Changes is the number of changes per second of the gateway's configuration.
	Changes int
	// Visits are visits of a web site, instead of a Spec.
	Visits *Visits
}

// Generated reports whether the workload is traffic of Fairlead's generator, as
// its Spec describes.
func (w Workload) Generated() bool { return w.Start == "" && !w.Separate() }

// Separate reports whether each run builds the path in a world of its own.
func (w Workload) Separate() bool { return w.Event != "" || w.Visits != nil || w.Fresh }

// Suite is a question and the measurements that answer it.
type Suite struct {
	Name     string
	Question string
	// Baseline is the path that all others are compared with.
	Baseline string
	Paths    []string
	// IfInstalled are paths that are measured too if the external programs that
	// create them are installed.
	IfInstalled []string
	Clients     []result.Client
	Workloads   []Workload
	Rounds      int
	Duration    time.Duration
	Warmup      time.Duration
	// Family is the address family of all paths.
	Family result.Family
	// Netem are the conditions of the wires; nil if there are none.
	Netem *result.Netem
	// Steps are the hops that the paths add, one after another.
	Steps []Step
	// Published are figures of others for the same question.
	Published []result.Published
}

// Step is one hop: the difference between Path, which has it, and Over, the path of
// the step before, which does not. Over is empty for the first step.
type Step struct{ Name, Path, Over string }

// Paths returns every path that can be measured, in display order. Paths at
// another MTU have other names (FindPath).
func Paths() []Path {
	return append([]Path{
		{Name: "host", About: "the workload in the host's network namespace: the baseline", Driver: model.DriverHost},
		{Name: "physical", About: "a plain process of the host, without container namespaces", Driver: model.DriverHost,
			Bare: true},
		{Name: "bridge",
			About:  "a sandbox on a bridge at its own address; for clients in the LAN its port is published via nat",
			Driver: model.DriverBridge, Via: model.ViaNAT, Direct: true},
		{Name: "routed", About: "a sandbox on a veth pair without a bridge, at its own address",
			Driver: model.DriverRouted, Direct: true},
		{Name: "nat", About: "a port published by nftables NAT to a sandbox on a bridge", Driver: model.DriverBridge,
			Via: model.ViaNAT},
		{Name: "ebpf", About: "a port published by eBPF programs to a sandbox on a bridge", Driver: model.DriverBridge,
			Via: model.ViaEBPF},
		{Name: "socket", About: "a port published by eBPF hooks to a workload in the host's network namespace",
			Driver: model.DriverHost, Via: model.ViaSocket},
		{Name: "proxy", About: "a port published by Fairlead's user-space proxy to a sandbox on a bridge",
			Driver: model.DriverBridge, Via: model.ViaProxy},
		{Name: "docker-proxy", About: "a port published by Docker's own docker-proxy to a sandbox on a bridge",
			Driver: model.DriverBridge, Peer: DockerProxy},
		{Name: "hand-dnat", About: "a bridge made with ip and one DNAT rule made with nft, by hand",
			Driver: model.DriverBridge, Peer: HandDNAT},
		{Name: "hop-veth", About: "a sandbox on a veth pair, reached by forwarding, without any rule",
			Driver: model.DriverRouted, Peer: HandHops, Direct: true},
		{Name: "hop-bridge", About: "hop-veth with a bridge on the path", Driver: model.DriverBridge,
			Filter: model.FilterOff, Peer: HandHops, Direct: true},
		{Name: "hop-br-netfilter", About: "hop-bridge with br_netfilter on", Driver: model.DriverBridge,
			Filter: model.FilterOn, Peer: HandHops, Direct: true},
		{Name: "hop-conntrack", About: "hop-br-netfilter with connection tracking of forwarded packets",
			Driver: model.DriverBridge, Filter: model.FilterOn, Tracked: true, Peer: HandHops, Direct: true},
		{Name: "nat-100", About: "nat with 100 other published ports", Driver: model.DriverBridge, Via: model.ViaNAT,
			Others: 100},
		{Name: "nat-10k", About: "nat with 10,000 other published ports", Driver: model.DriverBridge, Via: model.ViaNAT,
			Others: 10_000},
		{Name: "ebpf-100", About: "ebpf with 100 other published ports", Driver: model.DriverBridge, Via: model.ViaEBPF,
			Others: 100},
		{Name: "ebpf-10k", About: "ebpf with 10,000 other published ports", Driver: model.DriverBridge,
			Via: model.ViaEBPF, Others: 10_000},
		{Name: "filter-off", About: "two sandboxes on a bridge, br_netfilter off", Driver: model.DriverBridge,
			Filter: model.FilterOff, Direct: true},
		{Name: "filter-on", About: "two sandboxes on a bridge, br_netfilter on", Driver: model.DriverBridge,
			Filter: model.FilterOn, Direct: true},
	}, slices.Concat(attachPaths(), outboundPaths(), dockerPaths(), balancerPaths(), gatewayPaths(), sitePaths(),
		clusterPaths(), virtualPaths())...)
}

// FindPath returns the path of that name. NAME-mtuBYTES is the path NAME over a
// wire of that MTU (default 1500), and NAME-portsNUMBER a path in Docker with that
// many published ports.
func FindPath(name string) (Path, bool) {
	rest, mtu, ok := cutMTU(name)
	plain, ports, counted := cutPorts(rest)
	if !ok || !counted {
		return Path{}, false
	}
	p, ok := find(Paths(), func(p Path) bool { return p.Name == plain })
	p.Name, p.Plain, p.MTU, p.Ports = name, plain, mtu, ports
	return p, ok && (ports == 1 || p.Peer.InDocker && !p.Direct && !p.Driver.Traits().HostNetns)
}

// Find returns the suite of that name.
func Find(name string) (Suite, bool) {
	return find(Suites(), func(s Suite) bool { return s.Name == name })
}

func find[T any](all []T, is func(T) bool) (T, bool) {
	i := slices.IndexFunc(all, is)
	if i < 0 {
		var zero T
		return zero, false
	}
	return all[i], true
}

// Reaches reports whether the client can reach the workload on this path; of Outbound,
// whether the workload's sandbox can reach the client host. The LAN cannot reach a
// bridge's sandbox without published ports. Most paths that others create, and
// sandboxes on the wire itself, do not serve clients on the server host.
func (p Path) Reaches(c result.Client) bool {
	switch {
	case c == result.Outbound:
		return p.opens()
	case p.Peer == HandMasquerade, p.Outbound != model.OutboundNFT:
		return false
	case p.Gateways > 0 || p.Virtual:
		return c == result.Remote
	case c == result.OtherNetwork:
		return p.crosses()
	case p.Peer.InDocker && !p.OnWire():
		return c != result.Remote || !p.Direct || !p.Driver.Traits().Bridge
	case p.ByOthers() || p.OnWire():
		return c == result.Remote || c == result.Peer && p.neighbors()
	}
	return c != result.Remote || p.Via != "" || p.Peer.Name != "" || !p.Driver.Traits().Bridge
}

// ByOthers reports whether Fairlead's engine creates nothing of the path: it is
// set up by hand, or by another program alone.
func (p Path) ByOthers() bool { return p.Peer.Name != "" && !p.Peer.Extends }

// OnWire reports whether the sandbox is on the wire itself, or on an overlay that
// the client's host is on too. The client then dials it there.
func (p Path) OnWire() bool { return p.Driver.Traits().OnLAN || p.OnBoth() }

// OnBoth reports whether both hosts make something of the path, not only the server's.
func (p Path) OnBoth() bool { return p.Driver.Traits().Overlay }

// Undivided returns why the path is measured on one machine only; "" if it can also be
// divided between two machines.
func (p Path) Undivided() string {
	switch {
	case p.Driver.Traits().ParentMAC:
		return "between two machines, the hosts' links are macvlans, and this version makes no ipvlan link on a macvlan"
	case p.Driver.Traits().SubLinks && p.Peer.Name != "" && p.Peer.Name != HandMade.Name:
		return "between two machines, sandboxes of other programs on the network itself are not measured: these " +
			"programs choose the MAC address, and announce it to all machines there"
	case p.Virtual:
		return "between two machines, virtual addresses are not measured: their log is of one clock"
	}
	return ""
}

// Undivided returns why the workload is measured on one machine only; "" if it can
// also be measured between two.
func (w Workload) Undivided() string {
	switch {
	case w.Event.OfHolder():
		return "between two machines, virtual addresses are not measured: their log is of one clock"
	case w.Event != "":
		return "between two machines, failures and updates of real servers are not measured: their time and that of " +
			"the requests are read from one clock"
	case w.Start != "":
		return "between two machines, starts of containers are not measured: they are timed with one clock"
	case w.Fresh:
		return "between two machines, paths are not built anew for each run"
	case w.Changes > 0:
		return "between two machines, changes of a gateway's configuration are not made"
	}
	return ""
}

// The workloads. Round trips wait in the kernel unless the name says spin. Bulk
// data flows to the server unless the name says down or both. A number of flows in
// a name is the number of other live flows; the number in tcp-crr-8 is that of
// concurrent connections. While tcp-rr-loaded measures round trips, bulk data flows to the
// server as in tcp-bulk.
var (
	bulk     = Workload{Name: "tcp-bulk", Spec: load.Spec{Workload: load.TCPBulk, Streams: 4}}
	rr       = Workload{Name: "tcp-rr", Spec: load.Spec{Workload: load.TCPRR, Mode: load.Block}}
	rrLoaded = Workload{Name: "tcp-rr" + result.LoadedMark,
		Spec: load.Spec{Workload: load.TCPRR, Mode: load.Block, Background: 4}}
	rrSpin   = Workload{Name: "tcp-rr-spin", Spec: load.Spec{Workload: load.TCPRR, Mode: load.Spin}}
	crr      = Workload{Name: "tcp-crr", Spec: load.Spec{Workload: load.TCPCRR}}
	pps      = Workload{Name: "udp-pps", Spec: load.Spec{Workload: load.UDPPPS}}
	udpBulk  = Workload{Name: "udp-bulk", Spec: load.Spec{Workload: load.UDPBulk}}
	udpRR    = Workload{Name: "udp-rr", Spec: load.Spec{Workload: load.UDPRR}}
	bulkUp10 = Workload{Name: "tcp-bulk", Spec: load.Spec{Workload: load.TCPBulk, Streams: 10}}
	bulkDn10 = Workload{Name: "tcp-bulk-down",
		Spec: load.Spec{Workload: load.TCPBulk, Streams: 10, Direction: load.Down}}
	bulkBoth = Workload{Name: "tcp-bulk-both",
		Spec: load.Spec{Workload: load.TCPBulk, Streams: 5, Direction: load.Both}}
	bulkFix = Workload{Name: "tcp-bulk-2g", Spec: load.Spec{Workload: load.TCPBulk, Streams: 4, Rate: 2e9}}
	bulkOne = Workload{Name: "tcp-bulk", Spec: load.Spec{Workload: load.TCPBulk, Streams: 1}}
	crr8    = Workload{Name: "tcp-crr-8", Spec: load.Spec{Workload: load.TCPCRR, Streams: 8}}
	crr30k  = Workload{Name: "tcp-crr-30k", Spec: load.Spec{Workload: load.TCPCRR, Count: 30_000}}
	pps1k   = Workload{Name: "udp-pps-1k-flows", Spec: load.Spec{Workload: load.UDPPPS, Flows: 1_000}}
	pps100k = Workload{Name: "udp-pps-100k-flows", Spec: load.Spec{Workload: load.UDPPPS, Flows: 100_000}}
	rr1k    = Workload{Name: "tcp-rr-1k-flows", Spec: load.Spec{Workload: load.TCPRR, Flows: 1_000}}
	rr100k  = Workload{Name: "tcp-rr-100k-flows", Spec: load.Spec{Workload: load.TCPRR, Flows: 100_000}}
)

// Workloads returns every workload, for a selection by name. Where suites differ
// in the number of streams, the suite's own workload is used.
func Workloads() []Workload {
	return []Workload{bulk, bulkTwo, bulkDn10, bulkBoth, bulkBothOne, bulkFix, rr, rrLoaded, rr1k, rr100k, rrSpin, crr,
		crr8, crr30k, ports50k, udpBulk, udpRR, udpQuery, pps, pps1k, pps100k, runTCP, runUDP, killed,
		silenced, drained, httpRR, httpsRR, h2RR, httpCRR, httpsCRR, wsRR, httpDown, httpUp, idleConns, http5k,
		httpChanges,
		visits, visitsKilled, visitsUnknown, visitsUpdate, visitsSeed, knee, vipKilled, vipPartition, vipPlanned}
}

// FindWorkload returns the workload of that name; the suite's own are preferred.
func (s Suite) FindWorkload(name string) (Workload, bool) {
	if w, ok := find(append(slices.Clone(s.Workloads), Workloads()...),
		func(w Workload) bool { return w.Name == name }); ok {
		return w, true
	}
	if w, ok := atVisits(name); ok {
		return w, true
	}
	return atRate(name)
}
