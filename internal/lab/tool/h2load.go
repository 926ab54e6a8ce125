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

// h2loadClient sends requests on persistent connections: over HTTP/1.1 with or without TLS, or
// over HTTP/2 with TLS. As Fairlead's generator, it offers only X25519.
func h2loadClient(w suite.Workload, target string, seconds int) []string {
	if w.Spec.Workload != load.HTTPRR || w.Spec.Rate > 0 || w.Changes > 0 {
		return nil
	}
	args := []string{"h2load", "--duration", strconv.Itoa(seconds), "--threads", "1",
		"--clients", strconv.Itoa(max(1, w.Spec.Streams)), "--groups", "X25519"}
	if w.Spec.Multiplex > 0 {
		args = append(args, "--max-concurrent-streams", strconv.Itoa(w.Spec.Multiplex))
	} else {
		args = append(args, "--h1")
	}
	scheme, port := "http", rig.WebPort
	if w.Spec.TLS {
		scheme, port = "https", rig.SecureWebPort
	}
	return append(args, "--connect-to", net.JoinHostPort(target, strconv.Itoa(port)),
		fmt.Sprintf("%s://%s:%d/", scheme, load.Host, port))
}

var (
	h2loadRate = regexp.MustCompile(`finished in [^,]*, ([0-9.]+) req/s`)
	// h2loadMean matches the least, the greatest and the mean time.
	h2loadMean   = regexp.MustCompile(`time for request:\s+\S+\s+\S+\s+([0-9.]+(?:us|ms|s))\s`)
	h2loadFailed = regexp.MustCompile(`[1-9]\d* (?:failed|errored|timeout|[345]xx)`)
)

// readH2load reads requests per second and the mean latency: h2load counts no quantiles. It
// returns an error if requests failed.
func readH2load(_ suite.Workload, out []byte) (map[result.Metric]float64, error) {
	rate, mean := h2loadRate.FindSubmatch(out), h2loadMean.FindSubmatch(out)
	if rate == nil || mean == nil {
		return nil, fmt.Errorf("no figure in %q", out)
	}
	if failed := h2loadFailed.FindAll(out, -1); failed != nil {
		return nil, fmt.Errorf("requests failed: %s", bytes.Join(failed, []byte(", ")))
	}
	v, err := strconv.ParseFloat(string(rate[1]), 64)
	if err != nil {
		return nil, err
	}
	d, err := time.ParseDuration(strings.Replace(string(mean[1]), "us", "µs", 1))
	if err != nil {
		return nil, err
	}
	return map[result.Metric]float64{result.RequestRate: v, result.LatencyMean: d.Seconds()}, nil
}
