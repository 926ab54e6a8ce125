package result

import (
	"regexp"
	"slices"
	"strings"
)

// Kinds lists the kinds of workload, in display order. A workload's name is its
// kind, optionally followed by a variant: tcp-rr-block.
var Kinds = slices.Concat([]string{"tcp-bulk", "tcp-rr", "tcp-crr", "udp-bulk", "udp-rr", UDPQuery, "udp-pps",
	PortExhaustion, DockerRun, Failover}, httpKinds, []string{Visiting, Knee, VIP})

// UDPQuery is the kind of workload that sends one question from each socket, as DNS
// clients do.
const UDPQuery = "udp-query"

// PortExhaustion is the kind of workload that makes so many short connections to one
// destination that source ports may run out.
const PortExhaustion = "port-exhaustion"

// httpKinds are the kinds of workload with requests over HTTP.
var httpKinds = []string{"http-rr", "https-rr", "h2-rr", "http-crr", "https-crr", "ws-rr", HTTPDown, HTTPUp, IdleConns}

// The kinds with large bodies, and that with idle connections.
const (
	HTTPDown  = "http-down"
	HTTPUp    = "http-up"
	IdleConns = "idle-conns"
)

// HTTP reports whether a workload sends requests over HTTP.
func HTTP(workload string) bool { return slices.Contains(httpKinds, Kind(workload)) }

// DockerRun is the kind of workload that starts a container. It sends no traffic.
const DockerRun = "docker-run"

// Failover is the kind of workload in which a real server fails or is drained
// under load.
const Failover = "failover"

// VIP is the kind of workload in which a virtual address moves to another host.
const VIP = "vip"

// LoadedMark ends the name of a workload that measures latency under load: transactions
// while bulk data uses the same path.
const LoadedMark = "-loaded"

// Loaded reports whether a workload measures latency under load.
func Loaded(workload string) bool { return strings.HasSuffix(workload, LoadedMark) }

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
	case "tcp-rr", "udp-rr", UDPQuery:
		return LatencyP50
	case "tcp-crr":
		return ConnectionRate
	case "udp-pps":
		return PacketRate
	case PortExhaustion:
		return FailedConnects
	case DockerRun:
		return StartTime
	case Failover:
		return FailedRequests
	case VIP:
		return FailoverTime
	case HTTPDown, HTTPUp:
		return Throughput
	case IdleConns:
		return Memory
	case Visiting:
		if visitsEvent.MatchString(workload) {
			return FailedVisits
		}
		return VisitP50
	case Knee:
		return KneeRate
	}
	switch {
	case HTTP(workload) && FixedRate(workload):
		return LatencyP99
	case HTTP(workload):
		return RequestRate
	}
	return Throughput
}

// visitsEvent matches the workloads in which something happens to nodes.
var visitsEvent = regexp.MustCompile("^" + Visiting + "-(killed|update)")

// Absolute reports whether no ratio of a metric is formed, because zero is its best
// value or it belongs to such a metric, so that the worst round matters as much as the
// median. This holds for the metrics of a failover and for numbers of failures.
func Absolute(m Metric) bool {
	return slices.Contains([]Metric{Requests, FailedRequests, NoticeTime, RecoveryTime, ReturnTime, SlowestRequest,
		FailedVisits, FailoverTime, Overlap, FailedConnects, CompletedConnects}, m)
}

// Cost returns the metric that shows best what a path costs under a workload,
// whatever the load.
func Cost(workload string) Metric {
	switch Kind(workload) {
	case "tcp-rr", "udp-rr", UDPQuery:
		return LatencyP50
	case "tcp-crr", "udp-pps", PortExhaustion:
		return CPUPerOp
	case DockerRun:
		return StartTime
	case Failover:
		return FailedRequests
	case VIP:
		return FailoverTime
	case IdleConns:
		return Memory
	case HTTPDown, HTTPUp:
		return CPUPerGB
	case Visiting, Knee:
		return CPUPerVisit
	}
	if HTTP(workload) {
		return CPUPerOp
	}
	return CPUPerGB
}

// fixedRate matches the end of the name of a workload at a fixed rate:
// tcp-bulk-2g, http-rr-10k.
var fixedRate = regexp.MustCompile(`-[0-9]+[kmg]$`)

// FixedRate reports whether bulk data or requests are sent at a rate that every path
// can carry. The throughput is then that rate, and only the cost and the latency are
// of interest.
func FixedRate(workload string) bool {
	kind := Kind(workload)
	return (strings.HasSuffix(kind, "-bulk") || kind == "http-rr") && fixedRate.MatchString(workload)
}
