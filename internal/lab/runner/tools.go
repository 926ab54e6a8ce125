package runner

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/report"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
)

// tool is an external generator that can be driven over the paths.
type tool struct {
	name string
	// server and client return the command lines; client returns nil if the tool
	// does not support the workload. Times are whole seconds, because the tools
	// accept no others.
	server func(w suite.Workload) []string
	client func(w suite.Workload, target string, seconds int) []string
	// ready is what the server prints when it listens. silent is the TCP port of a
	// server that prints nothing.
	ready  string
	silent int
	// config is what the server reads from its descriptor 3.
	config string
	// read returns the metrics from the client's output.
	read func(w suite.Workload, out []byte) (map[result.Metric]float64, error)
}

// The ports of the external tools; qperf needs a second one for data.
const (
	iperf3Port    = LoadPort + 1
	sockperfPort  = LoadPort + 2
	qperfPort     = LoadPort + 3
	qperfDataPort = LoadPort + 4
)

// toolbox returns every tool.
func toolbox() []tool {
	return []tool{
		{name: "iperf3", server: iperf3Server, client: iperf3Client, ready: "Server listening", read: readIperf3},
		{name: "qperf", server: qperfServer, client: qperfClient, silent: qperfPort, read: readQperf},
		{name: "sockperf", server: sockperfServer, client: sockperfClient, ready: "using recvfrom", read: readSockperf},
		{name: "wrk", server: nginxServer, client: wrkClient, silent: wrkPort, config: nginxConfig, read: readWrk},
	}
}

// Tools lists the external generators that can be driven.
func Tools() []string {
	var names []string
	for _, t := range toolbox() {
		names = append(names, t.name)
	}
	return names
}

// ToolMissing returns an error if a tool, or the server that it needs, is not
// installed.
func ToolMissing(name string) error {
	i := slices.IndexFunc(toolbox(), func(t tool) bool { return t.name == name })
	for _, program := range []string{name, toolbox()[i].server(suite.Workload{})[0]} {
		if _, err := lookPath(program); err != nil {
			return fmt.Errorf("%s is not installed: install Debian's package of the same name", program)
		}
	}
	return nil
}

// Cases lists what a session of the suite measures, as far as this is known
// before the paths are built.
func Cases(s suite.Suite, tools []string) []result.Case {
	var all []result.Case
	for _, u := range (&session{Options: Options{Suite: s, Tools: tools}}).units() {
		for _, name := range s.Paths {
			if p, _ := suite.FindPath(name); u.goes(p) {
				w, t := u.load.name()
				all = append(all, result.Case{Path: name, Client: u.client, Workload: w, Tool: t})
			}
		}
	}
	return all
}

// foreignLoad drives an external tool with a workload.
type foreignLoad struct {
	tool
	suite.Workload
}

func (f foreignLoad) name() (workload, tool string) { return f.Workload.Name, f.tool.name }

func (f foreignLoad) what() suite.Workload { return f.Workload }

// toolFor returns the tool of that name, if it supports the workload.
func toolFor(name string, w suite.Workload) (foreignLoad, bool) {
	i := slices.IndexFunc(toolbox(), func(t tool) bool { return t.name == name })
	t := toolbox()[i]
	return foreignLoad{t, w}, t.client(w, "", 1) != nil
}

func iperf3Server(suite.Workload) []string {
	return []string{"iperf3", "--server", "--one-off", "--forceflush", "--port", strconv.Itoa(iperf3Port)}
}

func iperf3Client(w suite.Workload, target string, seconds int) []string {
	if w.Spec.Workload != load.TCPBulk && w.Spec.Workload != load.UDPBulk {
		return nil
	}
	args := []string{"iperf3", "--client", target, "--port", strconv.Itoa(iperf3Port), "--json",
		"--time", strconv.Itoa(seconds), "--parallel", strconv.Itoa(max(1, w.Spec.Streams))}
	if w.Spec.Workload == load.UDPBulk {
		args = append(args, "--udp", "--bandwidth", "0", "--length", "1472")
	} else if w.Spec.Rate > 0 {
		args = append(args, "--bandwidth", strconv.Itoa(int(w.Spec.Rate)/max(1, w.Spec.Streams)))
	}
	switch w.Spec.Direction {
	case load.Down:
		args = append(args, "--reverse")
	case load.Both:
		args = append(args, "--bidir")
	}
	return args
}

func readIperf3(_ suite.Workload, out []byte) (map[result.Metric]float64, error) {
	runs, err := report.FromIperf3(bytes.NewReader(out))
	if err != nil {
		return nil, err
	}
	return runs[0].Metrics, nil
}

func qperfServer(suite.Workload) []string {
	return []string{"qperf", "--listen_port", strconv.Itoa(qperfPort)}
}

func qperfClient(w suite.Workload, target string, seconds int) []string {
	test := map[load.Workload]string{load.TCPBulk: "tcp_bw", load.TCPRR: "tcp_lat", load.UDPRR: "udp_lat"}[w.Spec.Workload]
	if test == "" || w.Spec.Mode == load.Spin || w.Spec.Rate > 0 || w.Spec.Streams > 1 || w.Spec.Direction == load.Both || w.Spec.Direction == load.Down {
		return nil
	}
	return []string{"qperf", target, "--listen_port", strconv.Itoa(qperfPort), "--ip_port", strconv.Itoa(qperfDataPort),
		"--wait_server", "5", "--time", strconv.Itoa(seconds), "--unify_units", "--precision", "6", test}
}

var (
	qperfBandwidth = regexp.MustCompile(`bw\s*=\s*([0-9.]+)\s*bytes/sec`)
	qperfLatency   = regexp.MustCompile(`latency\s*=\s*([0-9.]+)\s*ns`)
)

// readQperf reads bandwidth, or latency: the mean of one direction, which is half
// a round trip.
func readQperf(_ suite.Workload, out []byte) (map[result.Metric]float64, error) {
	if m := qperfBandwidth.FindSubmatch(out); m != nil {
		v, err := strconv.ParseFloat(string(m[1]), 64)
		return map[result.Metric]float64{result.Throughput: 8 * v}, err
	}
	if m := qperfLatency.FindSubmatch(out); m != nil {
		v, err := strconv.ParseFloat(string(m[1]), 64)
		return map[result.Metric]float64{result.LatencyMean: 2 * v * 1e-9}, err
	}
	return nil, fmt.Errorf("no figure in %q", out)
}

func sockperfServer(w suite.Workload) []string {
	return append([]string{"sockperf", "server", "-p", strconv.Itoa(sockperfPort)}, sockperfMode(w)...)
}

func sockperfClient(w suite.Workload, target string, seconds int) []string {
	if w.Spec.Workload != load.TCPRR && w.Spec.Workload != load.UDPRR {
		return nil
	}
	return append([]string{"sockperf", "ping-pong", "-i", target, "-p", strconv.Itoa(sockperfPort),
		"-t", strconv.Itoa(seconds), "--full-rtt"}, sockperfMode(w)...)
}

func sockperfMode(w suite.Workload) []string {
	var args []string
	if w.Spec.Workload == load.TCPRR {
		args = append(args, "--tcp")
	}
	if w.Spec.Mode == load.Spin {
		args = append(args, "--nonblocked")
	}
	return args
}

var sockperfPercentile = regexp.MustCompile(`percentile (50|99)\.000 =\s*([0-9.]+)`)

// readSockperf reads the percentiles, in µs.
func readSockperf(_ suite.Workload, out []byte) (map[result.Metric]float64, error) {
	metrics := map[result.Metric]float64{}
	for _, m := range sockperfPercentile.FindAllSubmatch(out, -1) {
		v, err := strconv.ParseFloat(string(m[2]), 64)
		if err != nil {
			return nil, err
		}
		metrics[map[string]result.Metric{"50": result.LatencyP50, "99": result.LatencyP99}[string(m[1])]] = v * 1e-6
	}
	if len(metrics) == 0 {
		return nil, fmt.Errorf("no percentile in %q", out)
	}
	return metrics, nil
}
