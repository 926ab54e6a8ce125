package suite

import (
	"fmt"
	"time"

	"fairlead/internal/lab/result"
)

// Suites returns every suite, the default first.
func Suites() []Suite {
	return []Suite{quick(), publish(), modes(), bridgeFilter(), rules(), waterfall(), scale(), attach(),
		outbound(), peerSuite(), docker(), dockerStart(), balancer(), gateway(), site(), cluster(), clusterOverlay()}
}

func quick() Suite {
	return Suite{
		Name:     "quick",
		Question: "How much does publishing a container's port cost?",
		Baseline: "host", Paths: []string{"host", "socket", "ebpf", "nat", "proxy"},
		IfInstalled: []string{"docker:publish"},
		Clients:     []result.Client{result.Remote},
		Workloads:   []Workload{bulk, rr, rrLoaded, crr, pps},
		Rounds:      10, Duration: 400 * time.Millisecond, Warmup: 100 * time.Millisecond,
	}
}

func publish() Suite {
	const source = "docker-networking-on-linux"
	figure := func(path string, m result.Metric, v float64) result.Published {
		return result.Published{Source: source, Path: path, Client: result.Local, Workload: "tcp-bulk", Metric: m,
			Value: v,
			Note:  "a laptop, 4 CPUs, iperf3, 10 connections, 60 s"}
	}
	return Suite{
		Name:     "publish",
		Question: "How much does each publish mode cost, for clients on the host and across the wire?",
		Baseline: "host", Paths: []string{"host", "socket", "ebpf", "nat", "proxy", "docker-proxy"},
		Clients:   []result.Client{result.Local, result.Remote},
		Workloads: []Workload{bulkUp10, bulkDn10, bulkBoth, bulkFix, rr, rrLoaded, rrSpin, crr, udpBulk, udpRR, pps},
		Rounds:    10, Duration: time.Second, Warmup: 200 * time.Millisecond,
		Published: []result.Published{
			figure("host", result.Throughput, 70e9), figure("host", result.IdleShare, 0.49),
			figure("nat", result.Throughput, 54e9), figure("nat", result.IdleShare, 0.49),
			figure("docker-proxy", result.Throughput, 42e9), figure("docker-proxy", result.IdleShare, 0.14),
			figure("host", result.Efficiency, 70e9/0.51), figure("nat", result.Efficiency, 54e9/0.51),
			figure("docker-proxy", result.Efficiency, 42e9/0.86),
		},
	}
}

func modes() Suite {
	const source = "docker-network-tests-host-bridge"
	var figures []result.Published
	// The post states no units. They are those of qperf: 10^6 bytes per second, and µs.
	add := func(path string, c result.Client, megabytes, latency float64) {
		p := result.Published{Source: source, Path: path, Client: c, Workload: "tcp-bulk", Metric: result.Throughput,
			Value: megabytes * 8e6, Note: fmt.Sprintf("%g MB/s by qperf tcp_bw, mean of 5", megabytes)}
		figures = append(figures, p)
		// qperf's tcp_lat is for one direction; the lab measures the round trip.
		p.Workload, p.Metric, p.Value = "tcp-rr", result.LatencyMean, 2*latency*1e-6
		p.Note = fmt.Sprintf("%g µs in one direction by qperf tcp_lat, mean of 5; doubled", latency)
		figures = append(figures, p)
	}
	add("bridge", result.Peer, 4024, 9.04)
	add("host", result.Peer, 4639, 7.9)
	add("physical", result.Peer, 4874, 6.73)
	add("bridge", result.Remote, 1010, 20)
	add("host", result.Remote, 1013, 17.5)
	add("physical", result.Remote, 1035, 17.1)
	return Suite{
		Name:     "modes",
		Question: "How much bandwidth and latency do bridge, routed and host networks cost, on one machine and across two?",
		Baseline: "host", Paths: []string{"host", "bridge", "routed", "physical"},
		Clients:   []result.Client{result.Peer, result.Remote},
		Workloads: []Workload{bulkOne, rr},
		Rounds:    5, Duration: 2 * time.Second, Warmup: 200 * time.Millisecond,
		Published: figures,
	}
}

func bridgeFilter() Suite {
	const source = "docker-bridge-basics"
	figure := func(path, workload string, bits float64) result.Published {
		return result.Published{Source: source, Path: path, Client: result.Peer, Workload: workload,
			Metric: result.Throughput, Value: bits, Note: "iperf between two containers, 10 s"}
	}
	return Suite{
		Name:     "bridge-filter",
		Question: "How much does filtering on the bridge (br_netfilter) cost between two sandboxes?",
		Baseline: "filter-off", Paths: []string{"filter-off", "filter-on"},
		Clients:   []result.Client{result.Peer},
		Workloads: []Workload{bulkOne, udpBulk, rr, pps},
		Rounds:    12, Duration: time.Second, Warmup: 200 * time.Millisecond,
		Published: []result.Published{
			figure("filter-off", "tcp-bulk", 22.1e9), figure("filter-on", "tcp-bulk", 19.2e9),
			figure("filter-off", "udp-bulk", 800*8e6), figure("filter-on", "udp-bulk", 800*8e6),
		},
	}
}

func rules() Suite {
	return Suite{
		Name:     "rules",
		Question: "Does Fairlead's nftables table cost more than one DNAT rule by hand, alone or among 10,000 publishes?",
		Baseline: "hand-dnat", Paths: []string{"hand-dnat", "nat", "nat-10k"},
		Clients:   []result.Client{result.Remote},
		Workloads: []Workload{bulk, rr, crr, pps},
		Rounds:    20, Duration: time.Second, Warmup: 200 * time.Millisecond,
	}
}

func waterfall() Suite {
	steps := []Step{
		{Name: "host", Path: "host"},
		{Name: "+ veth", Path: "hop-veth", Over: "host"},
		{Name: "+ bridge", Path: "hop-bridge", Over: "hop-veth"},
		{Name: "+ br_netfilter", Path: "hop-br-netfilter", Over: "hop-bridge"},
		{Name: "+ conntrack", Path: "hop-conntrack", Over: "hop-br-netfilter"},
		{Name: "+ NAT", Path: "nat", Over: "hop-conntrack"},
		{Name: "+ proxy", Path: "proxy", Over: "nat"},
		{Name: "eBPF short-cut", Path: "ebpf", Over: "host"},
	}
	s := Suite{
		Name:     "waterfall",
		Question: "How much does each hop on the path to a sandbox cost?",
		Baseline: "host",
		Clients:  []result.Client{result.Remote},
		// Every path can carry the fixed rate, so CPU times are compared at equal
		// load.
		Workloads: []Workload{rr, bulkFix},
		Rounds:    20, Duration: time.Second, Warmup: 200 * time.Millisecond,
		Steps: steps,
	}
	for _, step := range steps {
		s.Paths = append(s.Paths, step.Path)
	}
	return s
}

func scale() Suite {
	return Suite{
		Name:     "scale",
		Question: "Do many publishes or many live flows slow a published port down?",
		Baseline: "nat", Paths: []string{"nat", "nat-100", "nat-10k", "ebpf", "ebpf-100", "ebpf-10k"},
		Clients:   []result.Client{result.Remote},
		Workloads: []Workload{pps, pps1k, pps100k, rr, rr1k, rr100k, crr30k},
		Rounds:    8, Duration: time.Second, Warmup: 200 * time.Millisecond,
	}
}
