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
		{Name: "balance:haproxy", About: "a real server behind HAProxy in TCP mode", Driver: model.DriverRouted, Peer: HAProxy},
	}
}

// balancer is what balancing costs a connection and a packet.
func balancer() Suite {
	s := Suite{
		Name:     "balancer",
		Question: "What does each data plane of the balancer cost, against one real server reached directly and against HAProxy?",
		Baseline: "routed", Paths: []string{"routed"},
		Clients:   []result.Client{result.Remote},
		Workloads: []Workload{rr, crr, pps},
		Rounds:    10, Duration: time.Second, Warmup: 200 * time.Millisecond,
	}
	for _, p := range balancerPaths() {
		s.Paths = append(s.Paths, p.Name)
	}
	return s
}

// takesDatagrams reports whether the path carries UDP.
func (p Path) takesDatagrams() bool { return p.Peer != HAProxy }

func isUDP(w load.Workload) bool {
	return w == load.UDPBulk || w == load.UDPRR || w == load.UDPPPS
}

// Steered says that eBPF programs of ours lead the path's packets.
func (p Path) Steered() bool { return p.Via == model.ViaEBPF || p.Plane == model.PlaneEBPF }
