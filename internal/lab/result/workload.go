package result

import (
	"regexp"
	"slices"
	"strings"
)

// kind has the traits of a kind of workload. A workload's name is that of its kind, optionally
// followed by a variant: tcp-rr-block.
type kind struct {
	name, title string
	// main is the main metric, and cost the one that shows best what a path costs, whatever the load.
	main, cost Metric
	// http is true for requests over HTTP.
	http bool
}

// kinds are in display order.
var kinds = []kind{
	{"tcp-bulk", "bulk", Throughput, CPUPerGB, false},
	{"tcp-rr", "round trip", LatencyP50, LatencyP50, false},
	{"tcp-crr", "connect", ConnectionRate, CPUPerOp, false},
	{"udp-bulk", "UDP bulk", Throughput, CPUPerGB, false},
	{"udp-rr", "UDP round trip", LatencyP50, LatencyP50, false},
	{UDPQuery, "UDP query", LatencyP50, LatencyP50, false},
	{"udp-pps", "small packets", PacketRate, CPUPerOp, false},
	{PortExhaustion, "port exhaustion", FailedConnects, CPUPerOp, false},
	{DockerRun, "docker run", StartTime, StartTime, false},
	{Failover, "failover", FailedRequests, FailedRequests, false},
	{"http-rr", "HTTP", RequestRate, CPUPerOp, true},
	{"https-rr", "HTTPS", RequestRate, CPUPerOp, true},
	{"h2-rr", "HTTP/2", RequestRate, CPUPerOp, true},
	{"http-crr", "HTTP connect", RequestRate, CPUPerOp, true},
	{"https-crr", "HTTPS connect", RequestRate, CPUPerOp, true},
	{"ws-rr", "WebSocket", RequestRate, CPUPerOp, true},
	{HTTPDown, "HTTP download", Throughput, CPUPerGB, true},
	{HTTPUp, "HTTP upload", Throughput, CPUPerGB, true},
	{IdleConns, "idle connections", Memory, Memory, true},
	{Visiting, "visits", VisitP50, CPUPerVisit, false},
	{Knee, "knee", KneeRate, CPUPerVisit, false},
	{VIP, "virtual address", FailoverTime, FailoverTime, false},
}

// unknown has the traits of all other workloads.
var unknown = kind{main: Throughput, cost: CPUPerGB}

// UDPQuery is the kind of workload that sends one question from each socket, as DNS
// clients do.
const UDPQuery = "udp-query"

// PortExhaustion is the kind of workload that makes so many short connections to one
// destination that source ports may run out.
const PortExhaustion = "port-exhaustion"

// The kinds with large bodies, and that with idle connections.
const (
	HTTPDown  = "http-down"
	HTTPUp    = "http-up"
	IdleConns = "idle-conns"
)

// HTTP reports whether a workload sends requests over HTTP.
func HTTP(workload string) bool { return kindOf(workload).http }

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
func Kind(workload string) string { return kindOf(workload).name }

// KindTitle returns the readable name of a kind, or "" if it is unknown.
func KindTitle(kind string) string { return kindOf(kind).title }

func kindOf(workload string) kind {
	if i := KindRank(workload); i < len(kinds) {
		return kinds[i]
	}
	return unknown
}

// KindRank returns the place of a workload's kind in display order. Unknown ones come last.
func KindRank(workload string) int {
	for i, k := range kinds {
		if workload == k.name || strings.HasPrefix(workload, k.name+"-") {
			return i
		}
	}
	return len(kinds)
}

// Main returns the main metric of a workload.
func Main(workload string) Metric {
	switch main := kindOf(workload).main; {
	case main == VisitP50 && visitsEvent.MatchString(workload):
		return FailedVisits
	case main == RequestRate && FixedRate(workload):
		return LatencyP99
	default:
		return main
	}
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
func Cost(workload string) Metric { return kindOf(workload).cost }

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
