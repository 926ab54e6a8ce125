// Package result holds what the laboratory measured, as values with a stable
// JSON form: the host, every run, and the summary drawn from them. It does
// not measure, compute statistics or print.
package result

// Metric names a measured quantity. The unit of each is in Units.
type Metric string

// The metrics.
const (
	Throughput      Metric = "throughput"
	LatencyP50      Metric = "latency_p50"
	LatencyP99      Metric = "latency_p99"
	LatencyMean     Metric = "latency_mean"
	ConnectionRate  Metric = "connection_rate"
	TransactionRate Metric = "transaction_rate"
	PacketRate      Metric = "packet_rate"
	Loss            Metric = "loss"
	CPUPerGB        Metric = "cpu_per_gb"
	CPUPerOp        Metric = "cpu_per_op"
	IdleShare       Metric = "idle_share"
	Efficiency      Metric = "cpu_adjusted_throughput"
	// StartTime is from the start of `docker run` to the first answer, RunTime
	// until `docker run --rm` has ended, told to at that answer.
	StartTime Metric = "start_time"
	RunTime   Metric = "run_time"
	// Memory is what the engine's processes hold between them, PublishMemory
	// those of them that publish: docker-proxy, or Fairlead's. Pages that
	// several hold are divided among them (PSS).
	Memory        Metric = "memory"
	PublishMemory Metric = "publish_memory"
	// Requests counts those that were not over before a real server failed or
	// left, FailedRequests those of them that were not answered in time.
	Requests       Metric = "requests"
	FailedRequests Metric = "failed_requests"
	// NoticeTime is from then until the balancer says that the server is down,
	// RecoveryTime until the last request was sent that failed (0 if none did),
	// ReturnTime from the server's return until it answers clients again.
	NoticeTime   Metric = "notice_time"
	RecoveryTime Metric = "recovery_time"
	ReturnTime   Metric = "return_time"
	// SlowestRequest is the longest that an answer took.
	SlowestRequest Metric = "slowest_request"
)

// Better says which direction of a metric is good.
type Better string

// The two directions.
const (
	Higher Better = "higher"
	Lower  Better = "lower"
)

// Unit describes how to read a metric.
type Unit struct {
	Unit   string
	Better Better
}

// Units gives the unit and the good direction of every metric. GB is 10^9
// bytes of payload that reached the receiver.
var Units = map[Metric]Unit{
	Throughput:      {"bit/s", Higher},
	LatencyP50:      {"s", Lower},
	LatencyP99:      {"s", Lower},
	LatencyMean:     {"s", Lower},
	ConnectionRate:  {"1/s", Higher},
	TransactionRate: {"1/s", Higher},
	PacketRate:      {"1/s", Higher},
	Loss:            {"ratio", Lower},
	CPUPerGB:        {"s/GB", Lower},
	CPUPerOp:        {"s", Lower},
	IdleShare:       {"ratio", Higher},
	Efficiency:      {"bit/s", Higher},
	StartTime:       {"s", Lower},
	RunTime:         {"s", Lower},
	Memory:          {"B", Lower},
	PublishMemory:   {"B", Lower},
	Requests:        {"", Higher},
	FailedRequests:  {"", Lower},
	NoticeTime:      {"s", Lower},
	RecoveryTime:    {"s", Lower},
	ReturnTime:      {"s", Lower},
	SlowestRequest:  {"s", Lower},
}

// Client says where the traffic comes from.
type Client string

// The clients: another host across the wire, a process of the server's own
// host, or another sandbox on that host.
const (
	Remote Client = "remote"
	Local  Client = "local"
	Peer   Client = "peer"
)

// Report is one whole laboratory session.
type Report struct {
	// Format is the version of this layout.
	Format int    `json:"format"`
	Suite  string `json:"suite"`
	// Question is what the suite answers, in one line.
	Question string `json:"question"`
	// Started is RFC 3339.
	Started string `json:"started"`
	Seed    uint64 `json:"seed"`
	Rounds  int    `json:"rounds"`
	// Duration is the length in seconds of one measured window.
	Duration float64 `json:"duration"`
	// Paths lists the paths in the suite's order, the baseline first; rounds
	// are shuffled, so that the runs cannot tell it.
	Paths []string `json:"paths,omitempty"`
	// Shared says that load of other processes invalidated no run, as the user
	// asked, and Laboratories are the process ids of others that ran at the
	// same time.
	Shared       bool      `json:"shared,omitempty"`
	Laboratories []int     `json:"laboratories,omitempty"`
	Host         Host      `json:"host"`
	Runs         []Run     `json:"runs"`
	Summary      []Summary `json:"summary"`
	// Steps are what each hop on the way adds, where the suite goes hop by hop.
	Steps []Step `json:"steps,omitempty"`
	// Unavailable lists the paths that this host cannot build, with reasons.
	Unavailable []Unavailable `json:"unavailable,omitempty"`
	// Published holds the figures that others published for this question.
	Published []Published `json:"published,omitempty"`
}

// Host describes the machine, as far as it matters for the figures.
type Host struct {
	Kernel   string            `json:"kernel"`
	CPUs     int               `json:"cpus"`
	CPUModel string            `json:"cpu_model"`
	Memory   uint64            `json:"memory_bytes"`
	Fairlead string            `json:"fairlead"`
	Features map[string]bool   `json:"features"`
	Settings map[string]string `json:"settings"`
	// Tools holds the versions of the real tools that took part.
	Tools map[string]string `json:"tools,omitempty"`
}

// Case names what was measured: a workload through a path for a client.
type Case struct {
	Path     string `json:"path"`
	Client   Client `json:"client"`
	Workload string `json:"workload"`
	// Tool names the generator: "fairlead", or iperf3, qperf, sockperf.
	Tool string `json:"tool,omitempty"`
}

// OwnTool is what a case's Tool says of our own generator.
const OwnTool = "fairlead"

// GeneratorBound is the note on a run whose pace the generator set, and not
// the path.
const GeneratorBound = "generator-bound"

// Run is one measured window of one case in one round.
type Run struct {
	Case
	// Round counts from 1. Half is 1 or 2 for the baseline's first and
	// second measurement in the round (the A/A null), 0 for other paths.
	Round int `json:"round"`
	Half  int `json:"half,omitempty"`
	// Order is the position of the run within its round, from 0.
	Order   int                `json:"order"`
	Seconds float64            `json:"seconds"`
	Metrics map[Metric]float64 `json:"metrics"`
	Latency *Latency           `json:"latency,omitempty"`
	Ledger  *Ledger            `json:"ledger,omitempty"`
	// Others are the processes that spent most of the ledger's Other.
	Others []Consumer `json:"others,omitempty"`
	Proof  *Proof     `json:"proof,omitempty"`
	// Invalid holds the reasons for which the run does not count.
	Invalid []string `json:"invalid,omitempty"`
	// Disturbed says that the machine was busy with something else, or slowed
	// down, so that the run was made once more.
	Disturbed bool `json:"disturbed,omitempty"`
	// Notes holds remarks that do not invalidate, such as GeneratorBound.
	Notes []string `json:"notes,omitempty"`
	// Failed counts the failed requests by why, where a real server failed.
	Failed map[string]int `json:"failed,omitempty"`
	// Raw is the foreign tool's own output, where one was driven.
	Raw string `json:"raw,omitempty"`
}

// Latency holds percentiles in seconds: Quantiles[i] is the value at
// Levels[i] (0..1).
type Latency struct {
	Count     uint64    `json:"count"`
	Levels    []float64 `json:"levels"`
	Quantiles []float64 `json:"quantiles"`
	// Service is set for fixed-arrival runs: the uncorrected service times
	// (Quantiles are then measured from the intended start).
	Service []float64 `json:"service,omitempty"`
	// LatenessP99 is the generator's own lateness at fixed arrival, seconds.
	LatenessP99 float64 `json:"lateness_p99,omitempty"`
}

// Ledger accounts for every CPU-second of the window, in seconds.
type Ledger struct {
	Wall   float64 `json:"wall"`
	CPUs   int     `json:"cpus"`
	User   float64 `json:"user"`
	System float64 `json:"system"`
	IRQ    float64 `json:"irq"`
	Soft   float64 `json:"softirq"`
	Steal  float64 `json:"steal"`
	Idle   float64 `json:"idle"`
	// Busy is the sum of all but Idle; who spent it stands below.
	Busy         float64 `json:"busy"`
	Client       float64 `json:"client"`
	Server       float64 `json:"server"`
	Proxy        float64 `json:"proxy"`
	KernelThread float64 `json:"kernel_threads"`
	// Laboratory is this program itself, and what it started that is no party.
	Laboratory float64 `json:"laboratory"`
	// Other is what processes spent that do not belong to the laboratory.
	Other float64 `json:"other"`
	// Unattributed is Busy less everyone above (negative when the parts'
	// finer clock counts more than /proc/stat's ticks).
	Unattributed float64 `json:"unattributed"`
	// Error is |Unattributed| / Busy.
	Error float64 `json:"error"`
}

// Consumer is a process that used CPU time. What ended and was waited for is
// in its parent's.
type Consumer struct {
	PID     int     `json:"pid"`
	Command string  `json:"command"`
	Seconds float64 `json:"seconds"`
}

// Proof says whether counters on the path match the workload's own bytes.
type Proof struct {
	// Counter names what was read, e.g. "link fl-web rx_bytes".
	Counter string `json:"counter"`
	// Want is the least that the workload must have moved there; Got what
	// the counter moved.
	Want uint64 `json:"want"`
	Got  uint64 `json:"got"`
	// Absent names a counter that had to stay still, and its movement.
	Absent    string `json:"absent,omitempty"`
	AbsentGot uint64 `json:"absent_got,omitempty"`
	OK        bool   `json:"ok"`
}

// Summary is one figure of one case over all valid rounds.
type Summary struct {
	Case
	Metric Metric `json:"metric"`
	Unit   string `json:"unit"`
	Better Better `json:"better"`
	// Value is the median over rounds, with its 95 % interval.
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	// Worst is that of the round that did worst.
	Worst float64 `json:"worst"`
	// Baseline is the path that Ratio compares with, empty where nothing is
	// compared: the geometric mean
	// over rounds of value/baseline, with a bootstrap 95 % interval.
	Baseline  string  `json:"baseline"`
	Ratio     float64 `json:"ratio"`
	RatioLow  float64 `json:"ratio_low"`
	RatioHigh float64 `json:"ratio_high"`
	// P is the p-value, adjusted by Holm's method over the family of paths with
	// the same client, workload and metric: of Student's test, and of the exact
	// signed-rank test where there are enough rounds for it and it is greater.
	P float64 `json:"p"`
	// Rounds counts the valid rounds, Invalid those thrown out.
	Rounds  int `json:"rounds"`
	Invalid int `json:"invalid"`
	// Distinguishable is false inside the A/A noise floor.
	Distinguishable bool `json:"distinguishable"`
	// Noise is the half-width of the A/A interval as a ratio (0.016 = 1.6 %).
	Noise float64 `json:"noise"`
}

// Unavailable is a path that this host cannot build.
type Unavailable struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
	// Failed says that the host has what the path needs, and building it failed.
	Failed bool `json:"failed,omitempty"`
}

// Published is a figure from someone else's page.
type Published struct {
	Source   string  `json:"source"`
	Path     string  `json:"path"`
	Client   Client  `json:"client"`
	Workload string  `json:"workload"`
	Metric   Metric  `json:"metric"`
	Value    float64 `json:"value"`
	Note     string  `json:"note,omitempty"`
}
