package result

// Visiting is the prefix of the workloads with visits of a web site; Knee is the one
// that searches the greatest rate.
const (
	Visiting = "visits"
	Knee     = "knee"
)

// The metrics of visits.
const (
	// VisitP50 and VisitP99 are percentiles of the time of a visit, from its intended
	// start to its last byte.
	VisitP50 Metric = "visit_p50"
	VisitP99 Metric = "visit_p99"
	// FirstByteP50 is the median time from a visit's intended start to the head of its
	// first response.
	FirstByteP50 Metric = "first_byte_p50"
	// FailedVisits counts the visits without all bytes, or with wrong ones.
	FailedVisits Metric = "failed_visits"
	// KneeRate is the greatest number of visits per second at which the number of
	// visits in progress does not grow.
	KneeRate Metric = "knee_rate"
	// CPUPerVisit is the CPU time of the nodes and the director per visit.
	CPUPerVisit Metric = "cpu_per_visit"
	// Concurrent is the greatest number of visits in progress, SlowestProbe the longest
	// time to an answer of the probe.
	Concurrent   Metric = "concurrent_visits"
	SlowestProbe Metric = "slowest_probe"
)

// Site describes one run with visits.
type Site struct {
	// Visits and Requests count all visits and requests, Failed and FailedRequests those
	// that failed. Bytes counts the verified ones.
	Visits         int    `json:"visits"`
	Failed         int    `json:"failed"`
	Requests       int    `json:"requests"`
	FailedRequests int    `json:"failed_requests"`
	Bytes          uint64 `json:"bytes"`
	// Visit, FirstByte and Probe are the times of visits, to the first byte of visits,
	// and of the probe.
	Visit     Times `json:"visit"`
	FirstByte Times `json:"first_byte"`
	Probe     Times `json:"probe"`
	// LatenessP99 is the delay of the visitors' process itself, in seconds.
	LatenessP99 float64 `json:"lateness_p99"`
	// Concurrent is the greatest number of visits in progress. Drain is the time from
	// the last start to the end of the last visit, in seconds.
	Concurrent int     `json:"concurrent"`
	Drain      float64 `json:"drain"`
	// Samples are the course of the run, at equal distances.
	Samples []SiteSample `json:"samples,omitempty"`
	// Nodes are the nodes, Director is the director if there is one.
	Nodes    []SiteNode `json:"nodes"`
	Director *SiteNode  `json:"director,omitempty"`
	// Steps are the rates that were tried in search of the knee.
	Steps []SiteStep `json:"steps,omitempty"`
	// Events are what happened to nodes during the run.
	Events []SiteEvent `json:"events,omitempty"`
}

// Times are percentiles in seconds.
type Times struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// SiteSample is the state at one time of a run, in seconds after its begin.
type SiteSample struct {
	At float64 `json:"at"`
	// Concurrent is the number of visits in progress. Probe is the greatest response
	// time of the probes sent since the sample before, in seconds, 0 without any; Lost
	// counts those of them that failed.
	Concurrent int     `json:"concurrent"`
	Probe      float64 `json:"probe,omitempty"`
	Lost       int     `json:"lost,omitempty"`
}

// SiteNode has the counters of a host over a run.
type SiteNode struct {
	Name string `json:"name"`
	// Gateway is true if the node has a gateway that visitors use.
	Gateway bool `json:"gateway,omitempty"`
	// Requests is the number of requests that the node's web server answered. CPU is
	// the CPU time of the node's processes, and Throttled for how long its quota
	// stopped the gateway, in seconds. Sent is in bytes, with all headers.
	Requests  uint64  `json:"requests"`
	CPU       float64 `json:"cpu"`
	Throttled float64 `json:"throttled"`
	Sent      uint64  `json:"sent"`
}

// SiteStep is one rate that was tried, in visits per second.
type SiteStep struct {
	Rate float64 `json:"rate"`
	// Slope is the growth of the number of visits in progress, per second.
	Slope float64 `json:"slope"`
	// Over is true if the site could not carry the rate.
	Over bool `json:"over"`
}

// SiteEvent is something that happened to a node, in seconds after the begin.
type SiteEvent struct {
	At   float64 `json:"at"`
	What string  `json:"what"`
}
