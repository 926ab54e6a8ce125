package result

import (
	"regexp"
	"slices"
	"strings"
)

// Kinds lists the kinds of workload, in the order in which they are shown. A
// workload's name is its kind, or its kind and how it differs: tcp-rr-block.
var Kinds = []string{"tcp-bulk", "tcp-rr", "tcp-crr", "udp-bulk", "udp-rr", "udp-pps", DockerRun, Failover}

// DockerRun is the kind of workload that is a container's start, and not
// traffic.
const DockerRun = "docker-run"

// Failover is the kind that has a real server fail or leave under load.
const Failover = "failover"

// Kind gives the kind of a workload, or "" for one that we do not know.
func Kind(workload string) string {
	for _, k := range Kinds {
		if workload == k || strings.HasPrefix(workload, k+"-") {
			return k
		}
	}
	return ""
}

// Main gives the figure that a workload is run for.
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

// Absolute says of a metric that nothing is as good as it gets, so that no ratio
// can be formed, and that the worst round says as much as the median: those of
// a failover.
func Absolute(m Metric) bool {
	return slices.Contains([]Metric{Requests, FailedRequests, NoticeTime, RecoveryTime, ReturnTime, SlowestRequest}, m)
}

// Cost gives the figure in which a workload shows what a path costs, whatever
// the load.
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

// fixedRate is how the name of a workload at a fixed rate ends: tcp-bulk-2g.
var fixedRate = regexp.MustCompile(`-[0-9]+[kmg]$`)

// FixedRate reports whether bulk data is sent at a rate that every path can
// carry: its throughput is that rate, and only what it costs says something.
func FixedRate(workload string) bool {
	return strings.HasSuffix(Kind(workload), "-bulk") && fixedRate.MatchString(workload)
}
