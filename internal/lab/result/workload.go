package result

import (
	"regexp"
	"slices"
	"strings"
)

// Kinds lists the kinds of workload, in display order. A workload's name is its
// kind, optionally followed by a variant: tcp-rr-block.
var Kinds = []string{"tcp-bulk", "tcp-rr", "tcp-crr", "udp-bulk", "udp-rr", "udp-pps", DockerRun, Failover}

// DockerRun is the kind of workload that starts a container. It sends no traffic.
const DockerRun = "docker-run"

// Failover is the kind of workload in which a real server fails or is drained
// under load.
const Failover = "failover"

// Kind returns the kind of a workload, or "" if it is unknown.
func Kind(workload string) string {
	for _, k := range Kinds {
		if workload == k || strings.HasPrefix(workload, k+"-") {
			return k
		}
	}
	return ""
}

// Main returns the main metric of a workload.
func Main(workload string) Metric {
	switch Kind(workload) {
	case "tcp-rr", "udp-rr":
		return LatencyP50
	case "tcp-crr":
		return ConnectionRate
	case "udp-pps":
		return PacketRate
	case DockerRun:
		return StartTime
	case Failover:
		return FailedRequests
	}
	return Throughput
}

// Absolute reports whether zero is the best value of a metric, so that no ratio
// can be formed, and the worst round matters as much as the median. This holds for
// the metrics of a failover.
func Absolute(m Metric) bool {
	return slices.Contains([]Metric{Requests, FailedRequests, NoticeTime, RecoveryTime, ReturnTime, SlowestRequest}, m)
}

// Cost returns the metric that shows best what a path costs under a workload,
// whatever the load.
func Cost(workload string) Metric {
	switch Kind(workload) {
	case "tcp-rr", "udp-rr":
		return LatencyP50
	case "tcp-crr", "udp-pps":
		return CPUPerOp
	case DockerRun:
		return StartTime
	case Failover:
		return FailedRequests
	}
	return CPUPerGB
}

// fixedRate matches the end of the name of a workload at a fixed rate:
// tcp-bulk-2g.
var fixedRate = regexp.MustCompile(`-[0-9]+[kmg]$`)

// FixedRate reports whether bulk data is sent at a rate that every path can carry.
// The throughput is then that rate, and only the cost is of interest.
func FixedRate(workload string) bool {
	return strings.HasSuffix(Kind(workload), "-bulk") && fixedRate.MatchString(workload)
}
