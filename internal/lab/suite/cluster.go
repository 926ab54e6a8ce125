package suite

import (
	"time"

	"fairlead/internal/lab/result"
	"fairlead/internal/model"
)

// clusterPaths returns the paths of a cluster's networks.
func clusterPaths() []Path {
	return []Path{{Name: "cluster:overlay",
		About:  "a sandbox on an overlay of a cluster of three hosts, the client in one on another host",
		Driver: model.DriverVXLAN, Filter: model.FilterOff, Clustered: true, Direct: true}}
}

// clusterOverlay returns the suite about the packets of a cluster's overlay.
func clusterOverlay() Suite {
	return Suite{
		Name:     "cluster-overlay",
		Question: "Does an overlay of a cluster cost more than a VXLAN made by hand with static entries?",
		Baseline: "hand-vxlan", Paths: []string{"hand-vxlan", "cluster:overlay"},
		Clients:   []result.Client{result.Remote},
		Workloads: []Workload{bulk, rr, udpRR, crr},
		Rounds:    12, Duration: time.Second, Warmup: 200 * time.Millisecond,
	}
}

// The programs that give a virtual address to one of several hosts.
var (
	Keepalived      = Peer{Name: "keepalived", Extends: true}
	TunedKeepalived = Peer{Name: "keepalived-tuned", Extends: true}
	FairleadAddress = Peer{Name: "fairlead-address", Extends: true}
)

// virtualPaths returns the paths to a virtual address that several hosts can have.
func virtualPaths() []Path {
	path := func(name, about string, p Peer) Path {
		return Path{Name: "vip:" + name, About: about, Driver: model.DriverHost, Virtual: true, Peer: p}
	}
	held := func(hold time.Duration) Path {
		p := path("fairlead-"+hold.String(), "a virtual address of a cluster of three hosts with a hold time of "+
			hold.String(), FairleadAddress)
		p.Hold = hold
		return p
	}
	return []Path{
		held(time.Second),
		held(3 * time.Second),
		path("keepalived", "a virtual address of three hosts with keepalived and its defaults", Keepalived),
		path("keepalived-tuned", "vip:keepalived with ten advertisements per second", TunedKeepalived),
	}
}

// The events of the host that has the virtual address.
const (
	// HolderKilled means that the program that gives the host the address is killed,
	// and the host goes on.
	HolderKilled Event = "holder-killed"
	// HolderCut means that the host cannot reach the other hosts that can have the
	// address, while clients reach it.
	HolderCut Event = "holder-partition"
	// HolderPlanned means that the host gives the address to another one.
	HolderPlanned Event = "holder-planned"
)

var (
	vipKilled    = Workload{Name: result.VIP + "-killed", Event: HolderKilled}
	vipPartition = Workload{Name: result.VIP + "-partition", Event: HolderCut}
	vipPlanned   = Workload{Name: result.VIP + "-planned", Event: HolderPlanned}
)

// OfHolder reports whether the event is one of the host that has a virtual address.
func (e Event) OfHolder() bool { return e == HolderKilled || e == HolderCut || e == HolderPlanned }

// cluster returns the suite about what clients notice when a virtual address moves.
func cluster() Suite {
	s := Suite{
		Name: "cluster",
		Question: "How long is a virtual address unavailable when its host fails or hands it over, and do two hosts " +
			"ever answer for it at the same time?",
		Baseline:  "vip:keepalived",
		Clients:   []result.Client{result.Remote},
		Workloads: []Workload{vipKilled, vipPartition, vipPlanned},
		Rounds:    10, Duration: time.Second,
	}
	for _, p := range virtualPaths() {
		s.Paths = append(s.Paths, p.Name)
	}
	return s
}
