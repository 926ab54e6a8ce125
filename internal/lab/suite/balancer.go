package suite

import (
	"time"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/model"
)

// balancerPaths returns the paths on which the workload is a real server of a
// virtual service, with each data plane and with HAProxy. The sandboxes are those
// of the path routed, so the balancer is the only difference.
func balancerPaths() []Path {
	plane := func(name, about string, p model.Plane, services int) Path {
		return Path{Name: "balance:" + name, About: about, Driver: model.DriverRouted, Plane: p, Others: services}
	}
	return []Path{
		plane("ebpf", "a real server of a virtual service with data plane ebpf", model.PlaneEBPF, 0),
		plane("nft", "a real server of a virtual service with data plane nft", model.PlaneNFT, 0),
		plane("ipvs", "a real server of a virtual service with data plane ipvs", model.PlaneIPVS, 0),
		plane("ebpf-10", "balance:ebpf with 10 other services of 10 real servers each", model.PlaneEBPF, 10),
		plane("nft-10", "balance:nft with 10 other services of 10 real servers each", model.PlaneNFT, 10),
		plane("ebpf-1k", "balance:ebpf with 1,000 other services of 10 real servers each", model.PlaneEBPF, 1000),
		plane("nft-1k", "balance:nft with 1,000 other services of 10 real servers each", model.PlaneNFT, 1000),
		{Name: "balance:ebpf-passive",
			About:  "balance:ebpf with passive checks: failures of clients' connections count too",
			Driver: model.DriverRouted, Plane: model.PlaneEBPF, Passive: true},
		{Name: "balance:haproxy", About: "a real server behind HAProxy in TCP mode", Driver: model.DriverRouted,
			Peer: HAProxy},
	}
}

// Event is what happens to a real server.
type Event string

// The events. The server returns after each of them.
const (
	// Killed means that the server's process is killed; its host refuses
	// connections.
	Killed Event = "killed"
	// Silenced means that the server's host is down and nothing answers.
	Silenced Event = "silent"
	// Drained means that the server is drained and, when it has no connections left,
	// stopped for a while.
	Drained Event = "drained"
)

var (
	killed   = Workload{Name: result.Failover + "-killed", Event: Killed}
	silenced = Workload{Name: result.Failover + "-silent", Event: Silenced}
	drained  = Workload{Name: result.Failover + "-drained", Event: Drained}
)

// balancer returns the suite about the cost of balancing per connection and per
// packet, and about the effect on clients when a real server fails or is drained.
func balancer() Suite {
	s := Suite{
		Name:     "balancer",
		Question: "How much does each data plane of the balancer cost, and what do clients notice when a real server fails, compared with HAProxy and with one real server without a balancer?",
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

// Balanced reports whether a balancer distributes clients over real servers.
func (p Path) Balanced() bool { return p.Plane != "" || p.Peer.Balances }

// failsOver reports whether failover can be measured on the path: it can have several
// real servers, or it is the path without a balancer that they are compared with.
// Paths with other services are left out, because other services do not affect a
// failover.
func (p Path) failsOver() bool {
	return p.Driver == model.DriverRouted && p.Others == 0 && (p.Peer.Name == "" || p.Peer.Balances)
}

func isUDP(w load.Workload) bool {
	return w == load.UDPBulk || w == load.UDPRR || w == load.UDPPPS || w == load.UDPQuery
}
