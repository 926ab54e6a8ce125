package expr

import (
	"errors"
	"strings"
	"testing"

	"fairlead/internal/lab/result"
)

// session returns a report with a small synthetic summary.
func session() *result.Report {
	r := &result.Report{Unavailable: []result.Unavailable{{Path: "ebpf", Reason: "the kernel lacks BPF"}}}
	add := func(path string, client result.Client, workload string, m result.Metric, value, ratio float64) {
		r.Summary = append(r.Summary, result.Summary{
			Case:   result.Case{Path: path, Client: client, Workload: workload, Tool: "fairlead"},
			Metric: m, Value: value, Low: value * 0.9, High: value * 1.1,
			Baseline: "host", Ratio: ratio, RatioLow: ratio * 0.95, RatioHigh: ratio * 1.05,
			P: 0.01, Rounds: 12, Invalid: 1, Noise: 0.02,
		})
	}
	for path, ratio := range map[string]float64{"host": 1, "nat": 0.9, "docker-proxy": 0.4} {
		for client, by := range map[result.Client]float64{result.Remote: 1, result.Local: 0.5} {
			ratio := ratio * by
			add(path, client, "tcp-bulk", result.Throughput, ratio*20e9, ratio)
			add(path, client, "tcp-bulk-down", result.Throughput, ratio*18e9, ratio)
			add(path, client, "tcp-bulk", result.CPUPerGB, 0.5/ratio, 1/ratio)
			add(path, client, "tcp-rr-block", result.LatencyP50, 20e-6/ratio, 1/ratio)
			add(path, client, "tcp-rr-spin", result.LatencyP50, 15e-6/ratio, 1/ratio)
			add(path, client, "tcp-rr-spin", result.LatencyP99, 45e-6/ratio, 1/ratio)
		}
		add(path, result.Remote, "tcp-crr", result.ConnectionRate, ratio*14e3, ratio)
		add(path, result.Remote, "udp-pps", result.PacketRate, ratio*5e5, ratio)
		add(path, result.Remote, "udp-pps", result.Loss, 0.01, 1)
		add(path, result.Remote, "udp-bulk", result.Throughput, ratio*10e9, ratio)
	}
	return r
}

// TestOnlyComparedMetricsHaveARatio: a ratio of another metric is an error before
// anything is measured.
func TestOnlyComparedMetricsHaveARatio(t *testing.T) {
	cases := []result.Case{{Path: "balance:nft", Client: result.Remote, Workload: "failover-drained", Tool: "fairlead"}}
	for source, ok := range map[string]bool{
		"balance:nft.failover-drained.worst > 0":                 true,
		"balance:nft.failover-drained.failed_requests.worst > 0": true,
		"balance:nft.recovery_time > 3":                          true,
		"balance:nft.failover-drained.ratio > 1":                 false,
		"balance:nft.return.noise > 1":                           false,
	} {
		e, err := Parse(source)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Check(cases); (err == nil) != ok {
			t.Errorf("%s: %v", source, err)
		}
	}
}

func TestConditions(t *testing.T) {
	cases := map[string]bool{
		"nat.bulk.remote.ratio<0.8":                                  false,
		"nat.bulk.ratio<0.8":                                         true, // for the local client
		"docker-proxy.tcp-crr.remote.ratio < 0.5":                    true,
		"docker-proxy.remote.tcp-crr.connection_rate.ratio < 0.3":    false,
		"nat.latency_p99.remote.ratio_high > 1.2":                    false,
		"nat.latency_p99.remote.ratio_high > 1.16":                   true,
		"host.remote.bulk.throughput.value < 1e9":                    false,
		"host.remote.tcp-bulk < 2.1e+10":                             true,
		"0.8 >= nat.pps.ratio":                                       false,
		"nat.pps.loss > 0.005":                                       true,
		"nat.crr.p >= 0.05 || nat.crr.rounds < 6":                    false,
		"nat.crr.ratio < 0.95 && nat.pps.ratio < 0.95":               true,
		"nat.crr.ratio < 0.5 && nat.pps.ratio < 0.5 || 1 == nat.crr": false,
		"nat.crr.ratio < 0.5 && (nat.pps.ratio < 0.5||nat.crr>1)":    false,
		"nat.crr.ratio > docker-proxy.crr.ratio":                     true,
		"nat.bulk.value < docker-proxy.bulk.value":                   false, // compared per client
		"nat.crr.invalid != 1":                                       false,
		"nat.cpu_per_gb.remote.ratio > 1.1":                          true,
		"nat.packet.ratio <= 0.9":                                    true,
	}
	for source, want := range cases {
		e, err := Parse(source)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		failed, why, err := e.Eval(session())
		if err != nil || failed != want {
			t.Errorf("%s: failed = %v (%s), %v", source, failed, why, err)
		}
	}
}

func TestExplanation(t *testing.T) {
	e, err := Parse("nat.crr.ratio<0.95 && nat.pps.ratio<0.5")
	if err != nil {
		t.Fatal(err)
	}
	_, why, err := e.Eval(session())
	want := "nat.tcp-crr.remote.connection_rate.ratio = 0.9 is < 0.95; nat.udp-pps.remote.packet_rate.ratio = 0.9 is not < 0.5"
	if err != nil || why != want {
		t.Errorf("got %q (%v), want %q", why, err, want)
	}
}

func TestSyntaxErrorsNameTheColumn(t *testing.T) {
	cases := []struct {
		source string
		column int
		says   string
	}{
		{"", 1, "expected a number or a path"},
		{"nat.bulk.ratio", 15, "expected a comparison"},
		{"nat.bulk.ratio <", 17, "expected a number or a path"},
		{"nat..ratio < 1", 5, "expected a name"},
		{"nat.ratio < 1 nat", 15, "expected && or ||"},
		{"(nat.ratio < 1", 15, "expected )"},
		{"nat.ratio < 1Gbit", 13, `"1Gbit" is not a number`},
		{"nat.ratio < 1 || ", 18, "expected a number or a path"},
		{"1 < 2", 1, "names no path"},
		{"ä$.ratio<1", 2, "expected a comparison"},
		{"nat.ratio = 1", 11, "expected a comparison"},
	}
	for _, c := range cases {
		_, err := Parse(c.source)
		check(t, c.source, err, c.column, c.says)
	}
}

// TestUnknownNames: Check finds them before the measurements, Eval after them.
func TestUnknownNames(t *testing.T) {
	cases := []struct {
		source string
		column int
		says   string
	}{
		{"natt.bulk.ratio<1", 1, `unknown path "natt"; there are`},
		{"nat.crr.ratio<1 && nat.bulck.ratio<1", 24, "tcp-bulk"},
		{"nat.rr.ratio<1", 1, "add one of tcp-rr-block, tcp-rr-spin"},
		{"nat.ratio<1", 1, "ambiguous"},
		{"nat.latency.tcp-rr-spin.ratio<1", 5, "latency_p50, latency_p99"},
		{"nat.remote.local.bulk.ratio<1", 12, "second selector of its kind"},
		{"nat.local.crr.ratio<1", 1, "not measured"},
		{"nat.crr.loss<1", 1, "not measured"},
	}
	report := session()
	var planned []result.Case
	for _, s := range report.Summary {
		planned = append(planned, s.Case)
	}
	for _, c := range cases {
		e, err := Parse(c.source)
		if err != nil {
			t.Errorf("%s: %v", c.source, err)
			continue
		}
		_, _, err = e.Eval(report)
		check(t, c.source, err, c.column, c.says)
		check(t, c.source, e.Check(planned), c.column, c.says)
	}
	e, _ := Parse("nat.bulk.ratio<0.8 && host.throughput.remote.tcp-bulk.value < 1e9")
	if err := e.Check(planned); err != nil {
		t.Errorf("valid condition: %v", err)
	}
}

func check(t *testing.T, source string, err error, column int, says string) {
	t.Helper()
	var fault *Error
	if !errors.As(err, &fault) || fault.Column != column || !strings.Contains(err.Error(), says) {
		t.Errorf("%q: %v; want column %d and %q", source, err, column, says)
	}
}

func TestErrorMarksTheColumn(t *testing.T) {
	_, err := Parse("nat.ratio = 1")
	want := "read condition: column 11: expected a comparison: < <= > >= == !=\n  nat.ratio = 1\n            ^"
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}

// TestMissingFigureDoesNotPass: a condition on a figure that does not exist is an
// error, not a success.
func TestMissingFigureDoesNotPass(t *testing.T) {
	report := session()
	for i, s := range report.Summary {
		if s.Path == "nat" && s.Workload == "tcp-crr" {
			report.Summary[i].Rounds, report.Summary[i].Invalid = 0, 12
		}
	}
	for source, says := range map[string]string{
		"nat.crr.ratio<0.8":   "all 12 rounds were discarded",
		"ebpf.bulk.ratio<0.8": "the kernel lacks BPF",
	} {
		e, err := Parse(source)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := e.Eval(report); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", source, err)
		}
	}
	e, _ := Parse("nat.crr.rounds < 6")
	if failed, _, err := e.Eval(report); err != nil || !failed {
		t.Errorf("a condition on the number of rounds: failed = %v, %v; want true", failed, err)
	}
	e, _ = Parse("nat.crr.rounds < 6")
	if _, _, err := e.Eval(&result.Report{}); err == nil {
		t.Error("Eval accepts an empty report")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("nat.bulk.ratio<0.8 && (a.b < 1e-6 || c != -2)")
	f.Fuzz(func(t *testing.T, source string) {
		e, err := Parse(source)
		var fault *Error
		if err != nil && (!errors.As(err, &fault) || fault.Column < 1 || fault.Error() == "") {
			t.Errorf("%q: %v", source, err)
		}
		if err == nil {
			e.Eval(session())
		}
	})
}
