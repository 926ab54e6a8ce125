package tool

import (
	"bytes"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

// wrkClient sends requests over HTTP: for tcp-rr and http-rr on persistent connections,
// for tcp-crr and http-crr on a new connection each time.
func wrkClient(w suite.Workload, target string, seconds int) []string {
	args := []string{"wrk", "--latency", "--threads", "1", "--duration", strconv.Itoa(seconds) + "s",
		"--connections", strconv.Itoa(max(1, w.Spec.Streams)), "--header", "Host: " + load.Host}
	switch {
	case w.Spec.Mode == load.Spin || w.Spec.Rate > 0 || w.Spec.Flows > 0 || w.Spec.Count > 0 ||
		w.Spec.Close == load.RST || w.Spec.TLS || w.Changes > 0:
		return nil
	case w.Spec.Workload == load.TCPRR, w.Spec.Workload == load.HTTPRR:
	case w.Spec.Workload == load.TCPCRR, w.Spec.Workload == load.HTTPCRR:
		args = append(args, "--header", "Connection: close")
	default:
		return nil
	}
	return append(args, fmt.Sprintf("http://%s/", net.JoinHostPort(target, strconv.Itoa(rig.WebPort))))
}

var (
	wrkRate    = regexp.MustCompile(`Requests/sec:\s*([0-9.]+)`)
	wrkLatency = regexp.MustCompile(`(50|99)%\s+([0-9.]+)(us|ms|s)\b`)
	wrkFailed  = regexp.MustCompile(`Non-2xx or 3xx responses: \d+|Socket errors: [^\n]*`)
)

// readWrk reads requests per second, which are connections if each has its own,
// and latencies with their units. It returns an error if requests failed.
func readWrk(w suite.Workload, out []byte) (map[result.Metric]float64, error) {
	found := wrkRate.FindSubmatch(out)
	if found == nil {
		return nil, fmt.Errorf("no figure in %q", out)
	}
	if failed := wrkFailed.Find(out); failed != nil {
		return nil, fmt.Errorf("requests failed: %s", bytes.TrimSpace(failed))
	}
	v, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		return nil, err
	}
	rate := result.TransactionRate
	switch {
	case w.Spec.Workload == load.TCPCRR:
		rate = result.ConnectionRate
	case w.Spec.Workload.HTTP():
		rate = result.RequestRate
	}
	metrics := map[result.Metric]float64{rate: v}
	for _, m := range wrkLatency.FindAllSubmatch(out, -1) {
		d, err := time.ParseDuration(strings.Replace(string(m[2])+string(m[3]), "us", "µs", 1))
		if err != nil {
			return nil, err
		}
		metrics[map[string]result.Metric{"50": result.LatencyP50, "99": result.LatencyP99}[string(m[1])]] = d.Seconds()
	}
	return metrics, nil
}
