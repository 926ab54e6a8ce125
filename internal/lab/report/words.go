package report

import (
	"cmp"
	"fmt"
	"strings"

	"fairlead/internal/lab/result"
)

// workloadTitle returns a readable title of a workload, with the variant after the
// kind (block, spin, down …).
func workloadTitle(workload string) string {
	kind := result.Kind(workload)
	title := map[string]string{
		"tcp-bulk": "bulk", "tcp-rr": "round trip", "tcp-crr": "connect",
		"udp-bulk": "UDP bulk", "udp-rr": "UDP round trip", "udp-pps": "small packets",
		result.UDPQuery: "UDP query", result.PortExhaustion: "port exhaustion",
		result.DockerRun: "docker run", result.Failover: "failover", result.VIP: "virtual address",
		"http-rr": "HTTP", "https-rr": "HTTPS", "h2-rr": "HTTP/2", "http-crr": "HTTP connect",
		"https-crr": "HTTPS connect", "ws-rr": "WebSocket", result.HTTPDown: "HTTP download",
		result.HTTPUp: "HTTP upload", result.IdleConns: "idle connections",
		result.Visiting: "visits", result.Knee: "knee",
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

// clientTitle describes where the client is.
func clientTitle(c result.Client) string {
	switch c {
	case result.Remote:
		return "client across the wire"
	case result.Local:
		return "client on the same host"
	case result.Peer:
		return "client in another sandbox"
	case result.OtherNetwork:
		return "client in a sandbox of another network"
	case result.Outbound:
		return "sandbox that connects to a host"
	}
	return "client " + string(c)
}

// metricTitle returns a readable name of a metric.
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
	case result.LatencyP999:
		return "p99.9 latency"
	case result.RequestRate:
		return "requests per second"
	case result.GatewayPerOp, result.GatewayPerGB:
		return "gateway CPU"
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
		return "time to the first answer"
	case result.RunTime:
		return "time to the end"
	case result.Memory:
		return "memory"
	case result.PublishMemory:
		return "memory for publishing"
	case result.Requests:
		return "requests"
	case result.FailedRequests:
		return "failed requests"
	case result.NoticeTime:
		return "notice time"
	case result.RecoveryTime:
		return "recovery time"
	case result.ReturnTime:
		return "return time"
	case result.ChangeTime:
		return "time to a change"
	case result.SlowestRequest:
		return "slowest request"
	case result.FailoverTime:
		return "failover time"
	case result.Overlap:
		return "overlap"
	case result.FailedConnects:
		return "failed connects"
	case result.CompletedConnects:
		return "completed connects"
	case result.VisitP50:
		return "median time"
	case result.VisitP99:
		return "p99 time"
	case result.FirstByteP50:
		return "time to the first byte"
	case result.FailedVisits:
		return "failed visits"
	case result.KneeRate:
		return "visits per second"
	case result.CPUPerVisit:
		return "CPU per visit"
	case result.Concurrent:
		return "most visits in progress"
	case result.SlowestProbe:
		return "slowest probe"
	}
	return string(m)
}

// plural formats a number with a noun whose plural ends in s.
func plural(n int, noun string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
