package e2e_test

import (
	"strings"
	"testing"
)

// TestRealTools runs other traffic generators over the same paths. Each must have separate rows in
// the summary with plausible figures.
func TestRealTools(t *testing.T) {
	r := newRoom(t)
	o := r.undisturbed("tools.json", "lab", "run", "proxy", "--with", strings.Join(everyTool, ","), "--workload",
		"tcp-bulk,tcp-rr,udp-rr", "--rounds", "1", "--duration", "100ms")
	o.expect(t, 0, nil)
	got := decode(t, r.read("tools.json"))
	for tool, metrics := range map[string][]string{
		"fairlead": {"tcp-bulk throughput", "tcp-rr latency_p50", "udp-rr latency_p50"},
		"iperf3":   {"tcp-bulk throughput"},
		"qperf":    {"tcp-rr latency_mean", "udp-rr latency_mean"},
		"sockperf": {"tcp-rr latency_p50", "udp-rr latency_p50"},
		"wrk":      {"tcp-rr latency_p50"},
	} {
		for _, metric := range metrics {
			for _, path := range []string{"host", "proxy"} {
				wantSane(t, got, tool, path, metric)
			}
		}
	}
	for _, run := range got.Runs {
		if len(run.Invalid) > 0 {
			t.Errorf("%s by %s through %s: %v", run.Workload, run.Tool, run.Path, run.Invalid)
		}
		if run.Proof == nil || !run.Proof.OK || run.Proof.Want < leastMoved(run) {
			t.Errorf("%s by %s: no proof that the traffic took %s: %+v", run.Workload, run.Tool, run.Path, run.Proof)
		}
		checkLedger(t, run)
		if run.Tool != "fairlead" && run.Raw == "" {
			t.Errorf("%s by %s: the tool's output was not stored", run.Workload, run.Tool)
		}
	}
	versions, _ := got.Host["tools"].(map[string]any)
	for _, tool := range everyTool {
		if v, _ := versions[tool].(string); !strings.ContainsAny(v, "0123456789") {
			t.Errorf("the report names no version of %s: %v", tool, versions)
		}
	}
	reimport(t, r, got)
}

// leastMoved returns the minimum number of bytes that the path proof of a run must require. A round
// trip of Fairlead's generator is one byte in each direction. Other tools run for a second: half of
// the number of round trips at the median latency is required.
func leastMoved(r run) uint64 {
	switch p50 := r.Metrics["latency_p50"]; {
	case r.Tool == "fairlead" && r.Latency != nil:
		return max(2, 2*r.Latency.Count)
	case p50 > 0:
		return uint64(0.5 / p50)
	}
	return 1000
}

// sane limits each metric to values that are possible on any machine: from 1 Mbit/s to 1 Tbit/s,
// from 1 µs to one second.
var sane = map[string][2]float64{"throughput": {1e6, 1e12}, "latency_p50": {1e-6, 1}, "latency_mean": {1e-6, 1},
	"latency_p999": {1e-6, 2}, "request_rate": {10, 1e7}, "connection_rate": {10, 1e7}, "cpu_per_gb": {1e-3, 1e3},
	"gateway_cpu_per_op": {1e-7, 0.1}, "memory": {1e6, 1e10}, "change_time": {1e-5, 30}}

func wantSane(t *testing.T, got report, tool, path, metric string) {
	t.Helper()
	for _, row := range got.Summary {
		workload, name, _ := strings.Cut(metric, " ")
		if row["tool"] != tool || row["path"] != path || row["workload"] != workload || row["metric"] != name {
			continue
		}
		if v := row["value"].(float64); v < sane[name][0] || v > sane[name][1] {
			t.Errorf("%s by %s through %s: %v", metric, tool, path, v)
		}
		return
	}
	t.Errorf("no row of %s by %s through %s", metric, tool, path)
}

// reimport imports the output of iperf3 itself.
func reimport(t *testing.T, r *room, got report) {
	t.Helper()
	for _, run := range got.Runs {
		if run.Tool != "iperf3" {
			continue
		}
		r.write("theirs.json", []byte(run.Raw))
		again := decode(t, []byte(r.succeed("lab", "report", r.file("theirs.json"), "-o", "json")))
		if len(again.Runs) != 1 || again.Runs[0].Metrics["throughput"] != run.Metrics["throughput"] ||
			again.Runs[0].Path != "theirs" {
			t.Errorf("iperf3's own output is read as %+v, want %v bit/s", again.Runs, run.Metrics["throughput"])
		}
		return
	}
	t.Error("no run of iperf3")
}
