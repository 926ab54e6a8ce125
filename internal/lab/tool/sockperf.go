package tool

import (
	"fmt"
	"regexp"
	"strconv"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
)

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
