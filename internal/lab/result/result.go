// Package result defines the results of the laboratory as values with a stable JSON
// form: the host, every run, and the summary of the runs. It does not measure,
// compute statistics or print.
package result

// Metric names a measured quantity. The unit of each is in Units.
type Metric string

// The metrics.
const (
	Throughput  Metric = "throughput"
	LatencyP50  Metric = "latency_p50"
	LatencyP99  Metric = "latency_p99"
	LatencyMean Metric = "latency_mean"
	// LatencyP999 is the 99.9th percentile of HTTP requests.
	LatencyP999     Metric = "latency_p999"
	RequestRate     Metric = "request_rate"
	ConnectionRate  Metric = "connection_rate"
	TransactionRate Metric = "transaction_rate"
	PacketRate      Metric = "packet_rate"
	Loss            Metric = "loss"
	CPUPerGB        Metric = "cpu_per_gb"
	CPUPerOp        Metric = "cpu_per_op"
	// GatewayPerGB and GatewayPerOp are the parts of the gateway's own processes in
	// CPUPerGB and CPUPerOp.
	GatewayPerGB Metric = "gateway_cpu_per_gb"
	GatewayPerOp Metric = "gateway_cpu_per_op"
	IdleShare    Metric = "idle_share"
	Efficiency   Metric = "cpu_adjusted_throughput"
	// StartTime is the time from the start of `docker run` to the first answer.
	// RunTime ends when `docker run --rm` has ended, which is requested at that
	// answer.
	StartTime Metric = "start_time"
	RunTime   Metric = "run_time"
	// Memory is the memory of all processes of the engine, or of the gateway. PublishMemory is that
	// of the processes that publish ports: docker-proxy, or Fairlead's. Shared
	// pages are divided among the processes that map them (PSS).
	Memory        Metric = "memory"
	PublishMemory Metric = "publish_memory"
	// Requests counts the requests that were not over before a real server failed
	// or was removed. FailedRequests counts those of them that were not answered
	// in time.
	Requests       Metric = "requests"
	FailedRequests Metric = "failed_requests"
	// NoticeTime is the time from that event until the balancer reports the server
	// as down. RecoveryTime ends at the start of the last request that failed (0
	// if none did). ReturnTime is the time from the server's return until it
	// answers clients again.
	NoticeTime   Metric = "notice_time"
	RecoveryTime Metric = "recovery_time"
	ReturnTime   Metric = "return_time"
	// ChangeTime is the time from the change of a gateway's configuration until the
	// gateway uses it.
	ChangeTime Metric = "change_time"
	// SlowestRequest is the longest time to an answer.
	SlowestRequest Metric = "slowest_request"
	// FailoverTime is the time from an event of the host that has a virtual address
	// until another host answers a client. Overlap is for how long two hosts answered
	// for the address at the same time. FailedConnects counts the connection attempts
	// that were not answered within 100 ms; if the workload is PortExhaustion, those that
	// failed or were not made in time. CompletedConnects counts the others.
	FailoverTime   Metric = "failover_time"
	Overlap        Metric = "overlap"
	FailedConnects Metric = "failed_connects"

	CompletedConnects Metric = "completed_connects"
)

// Better is the good direction of a metric.
type Better string

// The two directions.
const (
	Higher Better = "higher"
	Lower  Better = "lower"
)

// Unit is the unit of a metric, its good direction, and its readable name.
type Unit struct {
	Unit   string
	Better Better
	Title  string
}

// Units lists the unit, the good direction and the readable name of every metric. GB is 10^9 bytes of
// payload that reached the receiver.
var Units = map[Metric]Unit{
	Throughput:        {"bit/s", Higher, "throughput"},
	LatencyP50:        {"s", Lower, "median latency"},
	LatencyP99:        {"s", Lower, "p99 latency"},
	LatencyMean:       {"s", Lower, "mean latency"},
	LatencyP999:       {"s", Lower, "p99.9 latency"},
	RequestRate:       {"1/s", Higher, "requests per second"},
	ConnectionRate:    {"1/s", Higher, "connections"},
	TransactionRate:   {"1/s", Higher, "transactions"},
	PacketRate:        {"1/s", Higher, "packets"},
	Loss:              {"ratio", Lower, "loss"},
	CPUPerGB:          {"s/GB", Lower, "CPU per GB"},
	CPUPerOp:          {"s", Lower, "CPU per operation"},
	GatewayPerGB:      {"s/GB", Lower, "gateway CPU"},
	GatewayPerOp:      {"s", Lower, "gateway CPU"},
	IdleShare:         {"ratio", Higher, "idle CPU"},
	Efficiency:        {"bit/s", Higher, "CPU-adjusted"},
	StartTime:         {"s", Lower, "time to the first answer"},
	RunTime:           {"s", Lower, "time to the end"},
	Memory:            {"B", Lower, "memory"},
	PublishMemory:     {"B", Lower, "memory for publishing"},
	Requests:          {"", Higher, "requests"},
	FailedRequests:    {"", Lower, "failed requests"},
	NoticeTime:        {"s", Lower, "notice time"},
	RecoveryTime:      {"s", Lower, "recovery time"},
	ReturnTime:        {"s", Lower, "return time"},
	ChangeTime:        {"s", Lower, "time to a change"},
	SlowestRequest:    {"s", Lower, "slowest request"},
	FailoverTime:      {"s", Lower, "failover time"},
	Overlap:           {"s", Lower, "overlap"},
	FailedConnects:    {"", Lower, "failed connects"},
	CompletedConnects: {"", Higher, "completed connects"},
	VisitP50:          {"s", Lower, "median time"},
	VisitP99:          {"s", Lower, "p99 time"},
	FirstByteP50:      {"s", Lower, "time to the first byte"},
	FailedVisits:      {"", Lower, "failed visits"},
	KneeRate:          {"1/s", Higher, "visits per second"},
	CPUPerVisit:       {"s", Lower, "CPU per visit"},
	Concurrent:        {"", Lower, "most visits in progress"},
	SlowestProbe:      {"s", Lower, "slowest probe"},
}

// Client is the place that opens the connections.
type Client string

// The clients of the workload: another host across the wire, a process on the server's
// host, another sandbox of the same network, or a sandbox of another network of that
// host. Outbound is the workload's own sandbox as the client of a host across the wire.
const (
	Remote       Client = "remote"
	Local        Client = "local"
	Peer         Client = "peer"
	OtherNetwork Client = "other-network"
	Outbound     Client = "outbound"
)

// Clients lists all of them, in display order: the farthest first.
var Clients = []Client{Remote, Local, Peer, OtherNetwork, Outbound}

// Format is the version of the report's JSON layout that this version writes and
// reads.
const Format = 1

// Report is one whole laboratory session.
type Report struct {
	// Format is the version of this layout.
	Format int    `json:"format"`
	Suite  string `json:"suite"`
	// Question is the question that the suite answers, in one line.
	Question string `json:"question"`
	// Started is the time of the start (RFC 3339).
	Started string `json:"started"`
	Seed    uint64 `json:"seed"`
	// Rounds counts the rounds of a session. Sessions counts the sessions, each with new
	// topologies and a new order; 0 means one session.
	Rounds   int `json:"rounds"`
	Sessions int `json:"sessions,omitempty"`
	// Duration is the length of one measured window, in seconds.
	Duration float64 `json:"duration"`
	// Family is the address family of the traffic; 0, as in older reports, means IPv4.
	Family Family `json:"family,omitempty"`
	// Netem are the conditions of the wire, in each direction; nil if there were none.
	Netem *Netem `json:"netem,omitempty"`
	// Paths lists the paths in the suite's order, the baseline first. Runs do not
	// show that order, because rounds are shuffled.
	Paths []string `json:"paths,omitempty"`
	// Shared is true if load of other processes or of the hypervisor invalidated no run, as the user
	// asked. Laboratories are the process ids of other laboratories that ran at
	// the same time.
	Shared       bool  `json:"shared,omitempty"`
	Laboratories []int `json:"laboratories,omitempty"`
	// Host is the machine that measured; between two machines, the server's.
	Host Host `json:"host"`
	// Machines are the two machines, and Differences what differs between them.
	// Both are empty if everything was measured on one machine.
	Machines    []Machine `json:"machines,omitempty"`
	Differences []string  `json:"differences,omitempty"`
	Runs        []Run     `json:"runs"`
	Summary     []Summary `json:"summary"`
	// Steps are what each hop adds, in suites that measure hop by hop.
	Steps []Step `json:"steps,omitempty"`
	// Unavailable lists the paths that this host cannot build, and the workloads that
	// cannot be measured, with reasons.
	Unavailable []Unavailable `json:"unavailable,omitempty"`
	// Published lists figures that others published for this question.
	Published []Published `json:"published,omitempty"`
}

// Host describes the machine, as far as it matters for the figures.
type Host struct {
	Kernel   string `json:"kernel"`
	CPUs     int    `json:"cpus"`
	CPUModel string `json:"cpu_model"`
	Memory   uint64 `json:"memory_bytes"`
	Fairlead string `json:"fairlead"`
	// Features has those that the kernel was asked about.
	Features map[string]bool   `json:"features"`
	Settings map[string]string `json:"settings"`
	// Tools lists the versions of the external tools that were used.
	Tools map[string]string `json:"tools,omitempty"`
}

// Case names what was measured: a workload over a path for a client.
type Case struct {
	Path     string `json:"path"`
	Client   Client `json:"client"`
	Workload string `json:"workload"`
	// Tool is the load generator: "fairlead", or iperf3, qperf, sockperf.
	Tool string `json:"tool,omitempty"`
}

// OwnTool is the Tool of cases that use Fairlead's own generator.
const OwnTool = "fairlead"

// IsOwn reports whether a tool is Fairlead's generator, whose name may be empty.
func IsOwn(tool string) bool { return tool == "" || tool == OwnTool }

// GeneratorBound is the note on a run whose rate was limited by the load generator
// and not by the path.
const GeneratorBound = "generator-bound"

// Run is one measured window of one case in one round.
type Run struct {
	Case
	// Session counts from 1; 0 if there is only one session.
	Session int `json:"session,omitempty"`
	// Round counts from 1 in each session. Half is 1 or 2 for the baseline's first and
	// second measurement in the round (the A/A null), 0 for other paths.
	Round int `json:"round"`
	Half  int `json:"half,omitempty"`
	// Order is the position of the run within its round, from 0.
	Order   int                `json:"order"`
	Seconds float64            `json:"seconds"`
	Metrics map[Metric]float64 `json:"metrics"`
	Latency *Latency           `json:"latency,omitempty"`
	Ledger  *Ledger            `json:"ledger,omitempty"`
	// Ledgers are those of each machine, by the part that it had. Ledger is then
	// their sum.
	Ledgers map[string]Ledger `json:"ledgers,omitempty"`
	// Others are the processes that used most of the ledger's Other.
	Others []Consumer `json:"others,omitempty"`
	Proof  *Proof     `json:"proof,omitempty"`
	// Invalid lists the reasons why the run does not count.
	Invalid []string `json:"invalid,omitempty"`
	// Disturbed is true if the run does not count because of other load or a
	// slowed-down machine. The runner may have repeated it.
	Disturbed bool `json:"disturbed,omitempty"`
	// Notes lists remarks that do not invalidate the run, such as GeneratorBound.
	Notes []string `json:"notes,omitempty"`
	// Failed counts the failed requests or connections per reason, in workloads in which
	// failures are a result.
	Failed map[string]int `json:"failed,omitempty"`
	// Site describes visits of a web site, in those workloads.
	Site *Site `json:"site,omitempty"`
	// Raw is the output of the external tool, if one was used.
	Raw string `json:"raw,omitempty"`
}

// Latency contains quantiles in seconds: Quantiles[i] is the value at Levels[i]
// (0 to 1).
type Latency struct {
	Count     uint64    `json:"count"`
	Levels    []float64 `json:"levels"`
	Quantiles []float64 `json:"quantiles"`
	// Service contains the service times, measured from the actual sending. It is
	// set for runs at a fixed rate, in which Quantiles are measured from the
	// intended time.
	Service []float64 `json:"service,omitempty"`
	// LatenessP99 is the generator's own delay at a fixed rate, in seconds.
	LatenessP99 float64 `json:"lateness_p99,omitempty"`
}

// Ledger accounts for all CPU time of the window, in seconds.
type Ledger struct {
	Wall   float64 `json:"wall"`
	CPUs   int     `json:"cpus"`
	User   float64 `json:"user"`
	System float64 `json:"system"`
	IRQ    float64 `json:"irq"`
	Soft   float64 `json:"softirq"`
	Steal  float64 `json:"steal"`
	Idle   float64 `json:"idle"`
	// Busy is the sum of the columns above without Idle. The fields below divide it
	// by consumer.
	Busy         float64 `json:"busy"`
	Client       float64 `json:"client"`
	Server       float64 `json:"server"`
	Proxy        float64 `json:"proxy"`
	KernelThread float64 `json:"kernel_threads"`
	// Laboratory is this program, and children of it that are not part of a run.
	Laboratory float64 `json:"laboratory"`
	// Other is the time of processes outside the laboratory.
	Other float64 `json:"other"`
	// Unattributed is Busy less all consumers above. It is negative when their
	// finer clock counts more than the ticks of /proc/stat.
	Unattributed float64 `json:"unattributed"`
	// Error is |Unattributed| / Busy.
	Error float64 `json:"error"`
}

// Consumer is a process that used CPU time. Its time includes that of children that
// ended and were reaped.
type Consumer struct {
	PID     int     `json:"pid"`
	Command string  `json:"command"`
	Seconds float64 `json:"seconds"`
}

// Proof is the comparison of counters on the path with the bytes that the workload
// transferred.
type Proof struct {
	// Counter names the counter that was read, e.g. "bytes on link fl-web".
	Counter string `json:"counter"`
	// Want is the least amount by which the counter must have increased, Got the
	// amount by which it did.
	Want uint64 `json:"want"`
	Got  uint64 `json:"got"`
	// Absent names a counter that must not increase; AbsentGot is its increase.
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
	// Worst is the value of the worst round.
	Worst float64 `json:"worst"`
	// Baseline is the path that Ratio compares with, empty if nothing is compared.
	// Ratio is the geometric mean over rounds of value/baseline, with a bootstrap
	// 95 % interval. Of several sessions, it is the geometric mean of their ratios, with
	// the interval from the scatter within the sessions. Both ends are 0 if there is no
	// interval.
	Baseline  string  `json:"baseline"`
	Ratio     float64 `json:"ratio"`
	RatioLow  float64 `json:"ratio_low"`
	RatioHigh float64 `json:"ratio_high"`
	// Lacks is the reason why there is no ratio, or no interval; empty if both exist, or
	// if nothing is compared.
	Lacks string `json:"lacks,omitempty"`
	// Sessions counts the sessions with a valid round; 0 in a report of one session.
	// SessionLow and SessionHigh are the 95 % interval of Ratio that includes the
	// differences between sessions; 0 for fewer than two sessions.
	Sessions    int     `json:"sessions,omitempty"`
	SessionLow  float64 `json:"ratio_session_low,omitempty"`
	SessionHigh float64 `json:"ratio_session_high,omitempty"`
	// P is the p-value, adjusted by Holm's method over the family of paths with
	// the same client, workload and metric. It is that of Student's test, or that
	// of the exact signed-rank test if there are enough rounds for it and it is
	// greater.
	P float64 `json:"p"`
	// Rounds counts the valid rounds, Invalid the rounds that were discarded.
	Rounds  int `json:"rounds"`
	Invalid int `json:"invalid"`
	// Distinguishable is true if the interval (that with the session component, if there
	// were several sessions) excludes 1, the ratio is outside the A/A noise floor, and P is below 0.05.
	Distinguishable bool `json:"distinguishable"`
	// Noise is the half-width of the A/A interval as a ratio (0.016 = 1.6 %).
	Noise float64 `json:"noise"`
}

// Interval returns the 95 % interval of the ratio on which Distinguishable is based: that
// with the session component, if there were several sessions.
func (s Summary) Interval() (low, high float64) {
	if s.Sessions > 1 {
		return s.SessionLow, s.SessionHigh
	}
	return s.RatioLow, s.RatioHigh
}

// WidestInterval is the widest interval of a ratio that is given, as the quotient of its
// ends. Of two rounds, Student's interval on the logarithmic scale is 12.7 times as wide
// as their standard error, and its ends are easily powers of ten apart: it then says
// nothing, but looks like a figure.
const WidestInterval = 100

// HasInterval reports whether the ratio has the interval that Interval returns.
func (s Summary) HasInterval() bool {
	low, high := s.Interval()
	return s.Rounds > 1 && s.Sessions != 1 && low > 0 && high <= WidestInterval*low
}

// Unavailable is a path that this host cannot build, or a workload that cannot be
// measured.
type Unavailable struct {
	Path string `json:"path,omitempty"`
	// Workload is set instead of Path.
	Workload string `json:"workload,omitempty"`
	Reason   string `json:"reason"`
	// Failed is true if the host has what the path needs, but building the path
	// failed.
	Failed bool `json:"failed,omitempty"`
}

// Published is a figure that others have published.
type Published struct {
	Source   string  `json:"source"`
	Path     string  `json:"path"`
	Client   Client  `json:"client"`
	Workload string  `json:"workload"`
	Metric   Metric  `json:"metric"`
	Value    float64 `json:"value"`
	Note     string  `json:"note,omitempty"`
}
