package doctor

// Figure is what the laboratory has measured on one machine with two CPUs and
// Linux 6.18, and the command that measures it on another machine.
type Figure struct {
	Text    string `json:"text"`
	Command string `json:"command"`
}

// The figures.
var (
	dockerProxyCost = Figure{
		"compared with the container's own address, a client on the host gets 0.56 ±0.01 of the throughput, 3.08 ±0.04 times the round trip time, 0.34 ±0.02 of the connections per second and 1.76 ±0.04 times the CPU time per GB",
		"fairlead lab run publish bridge ebpf docker-proxy --baseline bridge --client local --workload tcp-bulk,tcp-crr,tcp-rr,udp-pps --rounds 10 --duration 400ms --seed 3",
	}
	bridgeFilterCost = Figure{
		"a round trip between two containers of a bridge takes 17.8 µs instead of 15.2 µs (1.17 ±0.03 times)",
		"fairlead lab run bridge-filter --workload tcp-bulk,tcp-rr --rounds 12 --duration 300ms --seed 3",
	}
	nftServiceCost = Figure{
		"a round trip takes 18.5 µs with nft and 14.9 µs with ebpf; clients open 10,363 connections per second with nft and 13,108 with ebpf",
		"fairlead lab run balancer routed balance:ebpf balance:nft --rounds 12 --duration 400ms --seed 3",
	}
	conntrackCost = Figure{
		"connection tracking adds 1.79 µs to a round trip (95 % interval: 0.93 to 2.79 µs)",
		"fairlead lab run waterfall --workload tcp-rr --rounds 12 --duration 200ms --seed 3",
	}
)
