package doctor

// Figure is what the laboratory has measured, on one machine with two CPUs and
// Linux 6.18, and the command that measures it on any other.
type Figure struct {
	Text    string `json:"text"`
	Command string `json:"command"`
}

// The figures.
var (
	dockerProxyCost = Figure{
		"a client on the host has 0.56 ±0.01 of the throughput, 3.08 ±0.04 times the round trip, 0.34 ±0.02 of the connections a second and 1.76 ±0.04 times the CPU time for a GB that it has at the container's own address",
		"fairlead lab run publish bridge ebpf docker-proxy --baseline bridge --client local --workload tcp-bulk,tcp-crr,tcp-rr,udp-pps --rounds 10 --duration 400ms --seed 3",
	}
	bridgeFilterCost = Figure{
		"a round trip between two containers of a bridge takes 17.8 µs instead of 15.2 (1.17 ±0.03)",
		"fairlead lab run bridge-filter --workload tcp-bulk,tcp-rr --rounds 12 --duration 300ms --seed 3",
	}
	nftServiceCost = Figure{
		"a round trip takes 18.5 µs by nft and 14.9 by ebpf; 10 363 and 13 108 connections a second are opened",
		"fairlead lab run balancer routed balance:ebpf balance:nft --rounds 12 --duration 400ms --seed 3",
	}
	conntrackCost = Figure{
		"following connections adds 1.79 µs to a round trip (95 %: 0.93 to 2.79)",
		"fairlead lab run waterfall --workload tcp-rr --rounds 12 --duration 200ms --seed 3",
	}
)
