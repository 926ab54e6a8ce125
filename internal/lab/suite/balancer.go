package suite

import (
	"time"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/model"
)

// balancerPaths have the workload as a real server of a virtual service, behind
// each data plane and behind HAProxy. The sandboxes are those of the path
// routed: what a plane adds is all that differs.
func balancerPaths() []Path {
	plane := func(name, about string, p model.Plane, services int) Path {
		return Path{Name: "balance:" + name, About: about, Driver: model.DriverRouted, Plane: p, Others: services}
	}
	return []Path{
		plane("ebpf", "a real server of a virtual service by eBPF programs", model.PlaneEBPF, 0),
		plane("nft", "a real server of a virtual service by nftables", model.PlaneNFT, 0),
		plane("ipvs", "a real server of a virtual service by IPVS", model.PlaneIPVS, 0),
		plane("ebpf-10", "balance:ebpf with 10 other services besides, of 10 real servers each", model.PlaneEBPF, 10),
		plane("nft-10", "balance:nft with 10 other services besides, of 10 real servers each", model.PlaneNFT, 10),
		plane("ebpf-1k", "balance:ebpf with 1,000 other services besides, of 10 real servers each", model.PlaneEBPF, 1000),
		plane("nft-1k", "balance:nft with 1,000 other services besides, of 10 real servers each", model.PlaneNFT, 1000),
		{Name: "balance:ebpf-passive", About: "balance:ebpf, heeding the failures of clients' own connections besides its checks", Driver: model.DriverRouted, Plane: model.PlaneEBPF, Passive: true},
		{Name: "balance:haproxy", About: "a real server behind HAProxy in TCP mode", Driver: model.DriverRouted, Peer: HAProxy},
	}
}

// Event is what becomes of a real server.
type Event string

// The events. Each of the first two ends by the server's return; before a
// drained server is shut down for a while, it has no connection left.
const (
	// Killed is the end of the server's process: its host refuses connections.
	Killed Event = "killed"
	// Silenced is a host that is gone: nobody answers.
	Silenced Event = "silent"
	Drained  Event = "drained"
)

var (
	killed   = Workload{Name: result.Failover + "-killed", Event: Killed}
	silenced = Workload{Name: result.Failover + "-silent", Event: Silenced}
	drained  = Workload{Name: result.Failover + "-drained", Event: Drained}
)

// balancer is what balancing costs a connection and a packet, and what clients
// notice when a real server fails or leaves.
func balancer() Suite {
	s := Suite{
		Name:     "balancer",
		Question: "What does each data plane of the balancer cost, and what do clients notice when a real server fails, beside HAProxy and one real server without a balancer?",
		Baseline: "routed", Paths: []string{"routed"},
		Clients:   []result.Client{result.Remote},
		Workloads: []Workload{rr, crr, pps, killed, silenced, drained},
		Rounds:    10, Duration: time.Second, Warmup: 200 * time.Millisecond,
	}
	for _, p := range balancerPaths() {
		s.Paths = append(s.Paths, p.Name)
	}
	return s
}

// Balanced says that clients are led to one of several real servers.
func (p Path) Balanced() bool { return p.Plane != "" || p.Peer == HAProxy }

// failsOver reports whether the path can have several real servers, or is the
// one without a balancer that those are compared with. What other services
// there are makes no difference to that.
func (p Path) failsOver() bool {
	return p.Driver == model.DriverRouted && p.Others == 0 && (p.Peer == "" || p.Peer == HAProxy)
}

// takesDatagrams reports whether the path carries UDP.
func (p Path) takesDatagrams() bool { return p.Peer != HAProxy }

func isUDP(w load.Workload) bool {
	return w == load.UDPBulk || w == load.UDPRR || w == load.UDPPPS
}

// UsesEBPF says that eBPF programs of ours lead the path's packets.
func (p Path) UsesEBPF() bool { return p.Via == model.ViaEBPF || p.Plane == model.PlaneEBPF }
