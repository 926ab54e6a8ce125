package report

import (
	"cmp"
	"fmt"
	"strings"

	"fairlead/internal/lab/result"
)

// workloadTitle puts a workload in plain words; what its name says beyond
// the kind (block, spin, down …) is kept.
func workloadTitle(workload string) string {
	kind := result.Kind(workload)
	title := map[string]string{
		"tcp-bulk": "bulk", "tcp-rr": "round trip", "tcp-crr": "connect",
		"udp-bulk": "UDP bulk", "udp-rr": "UDP round trip", "udp-pps": "small packets",
		result.DockerRun: "docker run", result.Failover: "failover",
	}[kind]
	if title == "" {
		return workload
	}
	return title + strings.ReplaceAll(strings.TrimPrefix(workload, kind), "-", " ")
}

// compareWorkloads orders workloads by kind, then by name.
func compareWorkloads(a, b string) int {
	return cmp.Or(
		cmp.Compare(rank(result.Kinds, result.Kind(a)), rank(result.Kinds, result.Kind(b))),
		cmp.Compare(a, b))
}

// clientTitle says where the client sits.
func clientTitle(c result.Client) string {
	switch c {
	case result.Remote:
		return "client across the wire"
	case result.Local:
		return "client on the same host"
	case result.Peer:
		return "client in another sandbox"
	}
	return "client " + string(c)
}

// metricTitle names a metric in plain words.
func metricTitle(m result.Metric) string {
	switch m {
	case result.Throughput:
		return "throughput"
	case result.LatencyP50:
		return "median latency"
	case result.LatencyMean:
		return "mean latency"
	case result.LatencyP99:
		return "p99 latency"
	case result.ConnectionRate:
		return "connections"
	case result.TransactionRate:
		return "transactions"
	case result.PacketRate:
		return "packets"
	case result.Loss:
		return "loss"
	case result.CPUPerGB:
		return "CPU per GB"
	case result.CPUPerOp:
		return "CPU per operation"
	case result.IdleShare:
		return "idle CPU"
	case result.Efficiency:
		return "CPU-adjusted"
	case result.StartTime:
		return "to the first answer"
	case result.RunTime:
		return "to the end"
	case result.Memory:
		return "memory"
	case result.PublishMemory:
		return "memory to publish"
	case result.Requests:
		return "requests"
	case result.FailedRequests:
		return "failed requests"
	case result.NoticeTime:
		return "to notice"
	case result.RecoveryTime:
		return "to recover"
	case result.ReturnTime:
		return "to return"
	case result.SlowestRequest:
		return "slowest request"
	}
	return string(m)
}

// plural counts a noun that takes an s.
func plural(n int, noun string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
