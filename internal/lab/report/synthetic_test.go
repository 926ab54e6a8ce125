package report

import (
	"math"
	"math/rand/v2"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"
)

// Everything in this file is synthetic: numbers from a generator with a fixed
// seed, to test the layout of reports. They were not measured.

// synth describes a synthetic session.
type synth struct {
	suite, question string
	paths           []string
	clients         []result.Client
	workloads       []string
	rounds          int
	published       []result.Published
	steps           []result.Step
}

var synthQuick = synth{
	suite:     "quick",
	question:  "How much does publishing a container's port cost?",
	paths:     []string{"host", "routed", "nat", "proxy"},
	clients:   []result.Client{result.Remote},
	workloads: []string{"tcp-bulk", "tcp-rr-block", "tcp-crr", "udp-pps"},
	rounds:    12,
}

var synthPublish = synth{
	suite:    "publish",
	question: "How much does each publish mode cost, and how does it use the CPU?",
	paths:    []string{"host", "nat", "proxy", "docker-proxy"},
	clients:  []result.Client{result.Remote, result.Local},
	workloads: []string{"tcp-bulk-down", "tcp-bulk-up", "tcp-rr-block", "tcp-rr-spin", "tcp-crr", "udp-bulk", "udp-rr",
		"udp-pps"},
	rounds: 5,
	published: []result.Published{
		{Source: "docker-networking-on-linux", Path: "docker-proxy", Client: result.Local, Workload: "tcp-bulk-up",
			Metric: result.Throughput, Value: 42e9, Note: "10 connections, 60 s"},
		{Source: "docker-networking-on-linux", Path: "nat", Client: result.Local, Workload: "tcp-bulk-up",
			Metric: result.Throughput, Value: 54e9},
		{Source: "docker-networking-on-linux", Path: "host", Client: result.Local, Workload: "tcp-bulk-up",
			Metric: result.Throughput, Value: 70e9},
		{Source: "docker-networking-on-linux", Path: "docker-proxy", Client: result.Local, Workload: "tcp-bulk-up",
			Metric: result.IdleShare, Value: 0.14},
		{Source: "docker-networking-on-linux", Path: "host", Client: result.Local, Workload: "tcp-bulk-up",
			Metric: result.IdleShare, Value: 0.49},
	},
}

var synthWaterfall = synth{
	suite:     "waterfall",
	question:  "How much does each hop on the path to a sandbox cost?",
	paths:     []string{"host", "routed", "nat", "proxy"},
	clients:   []result.Client{result.Remote},
	workloads: []string{"tcp-rr", "tcp-bulk-2g"},
	rounds:    8,
	steps: []result.Step{
		{Name: "host", Path: "host"}, {Name: "+ veth", Path: "routed", Over: "host"},
		{Name: "+ NAT", Path: "nat", Over: "routed"},
		{Name: "+ proxy", Path: "proxy", Over: "nat"}, {Name: "short-cut", Path: "routed", Over: "host"},
	},
}

// synthCost is the cost of a path's packet relative to the baseline's.
var synthCost = map[string]float64{"host": 1, "routed": 1.003, "nat": 1.09, "proxy": 2.2, "docker-proxy": 2.9}

// report draws the numbers of a whole session.
func (s synth) report() *result.Report {
	r := &result.Report{
		Format: result.Format, Suite: s.suite, Question: s.question, Started: "2026-01-02T03:04:05Z",
		Seed: 7, Rounds: s.rounds, Duration: 1, Paths: s.paths, Published: s.published,
		Host: result.Host{
			Kernel: "6.18.0", CPUs: 2, CPUModel: "Synthetic CPU", Memory: 8 << 30, Fairlead: "test",
			Features: map[string]bool{"br_netfilter": true, "nft_fib": true, "bpf": false},
			Settings: map[string]string{"net.ipv4.tcp_congestion_control": "cubic",
				"net.core.default_qdisc": "fq_codel"},
			Tools: map[string]string{"iperf3": "3.12"},
		},
		Unavailable: []result.Unavailable{{Path: "ebpf", Reason: "the kernel lacks CONFIG_BPF_SYSCALL"}},
	}
	rng := rand.New(rand.NewPCG(r.Seed, 99))
	for _, client := range s.clients {
		for _, workload := range s.workloads {
			s.drawRounds(r, rng, result.Case{Client: client, Workload: workload, Tool: "fairlead"})
		}
	}
	r.Summary = stats.Summarize(r.Runs, "host", r.Seed)
	r.Steps = stats.Steps(r.Runs, "host", s.steps, r.Seed)
	return r
}

// drawRounds appends the runs of one workload.
func (s synth) drawRounds(r *result.Report, rng *rand.Rand, c result.Case) {
	for i, turns := range stats.Schedule("host", s.paths, s.rounds, r.Seed+uint64(len(r.Runs))) {
		neighbour := math.Exp(0.05 * rng.NormFloat64())
		for _, turn := range turns {
			c.Path = turn.Path
			cost := synthCost[turn.Path] * neighbour * math.Exp(0.012*rng.NormFloat64())
			run := synthRun(c, cost, rng)
			run.Round, run.Half, run.Order = i+1, turn.Half, turn.Order
			if c.Path == "proxy" && c.Workload == "tcp-crr" && i == 2 {
				run.Invalid = []string{"steal 7.1 % exceeds 2 %"}
			}
			r.Runs = append(r.Runs, run)
		}
	}
}

// synthRun draws one run of a case with a given cost.
func synthRun(c result.Case, cost float64, rng *rand.Rand) result.Run {
	run := result.Run{Case: c, Seconds: 1, Metrics: map[result.Metric]float64{}}
	run.Ledger = synthLedger(c.Path, cost)
	run.Proof = &result.Proof{Counter: "link fl-web rx_bytes", Want: 1e9, Got: 1.04e9, OK: true}
	switch result.Kind(c.Workload) {
	case "tcp-bulk", "udp-bulk":
		run.Metrics[result.Throughput] = 21.7e9 / cost
	case "tcp-rr", "udp-rr":
		run.Latency = synthLatency(23e-6*math.Sqrt(cost), rng)
		run.Metrics[result.LatencyP50] = run.Latency.Quantiles[3]
		run.Metrics[result.LatencyP99] = run.Latency.Quantiles[6]
		run.Metrics[result.TransactionRate] = 0.9 / run.Latency.Quantiles[3]
	case "tcp-crr":
		run.Metrics[result.ConnectionRate] = 14300 / cost
	case "udp-pps":
		run.Metrics[result.PacketRate] = 512e3 / cost
		run.Metrics[result.Loss] = max(0, 0.02*(cost-1.05))
	}
	stats.Derive(&run)
	return run
}

func synthLatency(p50 float64, rng *rand.Rand) *result.Latency {
	l := &result.Latency{Count: 40000, Levels: []float64{0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999, 1}}
	tail := math.Exp(0.15 * rng.NormFloat64())
	for i, by := range []float64{0.7, 0.85, 0.93, 1, 1.08, 1.3, 2.1, 4.5, 11, 40} {
		if i > 5 {
			by *= tail
		}
		l.Quantiles = append(l.Quantiles, p50*by)
	}
	return l
}

func synthLedger(path string, cost float64) *result.Ledger {
	l := &result.Ledger{Wall: 1, CPUs: 2, User: 0.08, System: 0.9, Soft: 0.5, IRQ: 0.01, Steal: 0.01}
	l.Busy = min(1.98, 1.5*math.Sqrt(cost))
	l.Idle = 2 - l.Busy
	l.Client, l.Server, l.KernelThread, l.Other = 0.38*l.Busy, 0.40*l.Busy, 0.12*l.Busy, 0.02*l.Busy
	if path == "proxy" || path == "docker-proxy" {
		l.Client, l.Server, l.Proxy = 0.2*l.Busy, 0.22*l.Busy, 0.42*l.Busy
	}
	l.Unattributed = l.Busy - l.Client - l.Server - l.Proxy - l.KernelThread - l.Other
	l.Error = math.Abs(l.Unattributed) / l.Busy
	return l
}
