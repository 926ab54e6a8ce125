package tool

import (
	"fmt"
	"regexp"
	"strconv"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
)

func qperfServer(suite.Workload) []string {
	return []string{"qperf", "--listen_port", strconv.Itoa(qperfPort)}
}

func qperfClient(w suite.Workload, target string, seconds int) []string {
	test := map[load.Workload]string{load.TCPBulk: "tcp_bw", load.TCPRR: "tcp_lat",
		load.UDPRR: "udp_lat"}[w.Spec.Workload]
	if test == "" || w.Spec.Mode == load.Spin || w.Spec.Rate > 0 || w.Spec.Streams > 1 ||
		w.Spec.Direction == load.Both || w.Spec.Direction == load.Down {
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
