package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/perf/benchfmt"
)

// report is the JSON of a session. It is read through the documented names, not with the program's
// types.
type report struct {
	Seed    uint64           `json:"seed"`
	Rounds  int              `json:"rounds"`
	Family  int              `json:"family"`
	Host    map[string]any   `json:"host"`
	Runs    []run            `json:"runs"`
	Summary []map[string]any `json:"summary"`
	Absent  []absent         `json:"unavailable"`
}

type run struct {
	Path     string             `json:"path"`
	Client   string             `json:"client"`
	Workload string             `json:"workload"`
	Tool     string             `json:"tool"`
	Round    int                `json:"round"`
	Half     int                `json:"half"`
	Order    int                `json:"order"`
	Metrics  map[string]float64 `json:"metrics"`
	Ledger   map[string]float64 `json:"ledger"`
	Proof    *struct {
		Counter   string
		Want, Got uint64
		OK        bool `json:"ok"`
	} `json:"proof"`
	Latency *struct {
		Count uint64
	} `json:"latency"`
	Failed  map[string]int `json:"failed"`
	Invalid []string       `json:"invalid"`
	Raw     string         `json:"raw"`
}

type absent struct{ Path, Reason string }

func decode(t *testing.T, text []byte) report {
	t.Helper()
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatalf("read report: %v\n%.300s", err, text)
	}
	return r
}

// session is one short run of the default suite, with every file that it can write. Several tests
// use it.
type session struct {
	stdout, json, html, bench, iperf3 []byte
}

var kept struct {
	sync.Once
	session
}

// quickSession returns the session, which the first caller runs.
func quickSession(t *testing.T) session {
	t.Helper()
	kept.Do(func() {
		r := newRoom(t)
		o := r.undisturbed("q.json", "lab", "run", "quick", "docker-proxy", "nat", "proxy",
			"--rounds", "2", "--duration", "100ms", "--seed", "7", "-o", "json",
			"--html", r.file("q.html"), "--bench", r.file("q.txt"), "--iperf3", r.file("q.iperf3"))
		o.expect(t, 0, nil)
		kept.session = session{[]byte(o.stdout), r.read("q.json"), r.read("q.html"), r.read("q.txt"),
			r.read("q.iperf3")}
	})
	if kept.json == nil {
		t.Fatal("the session failed")
	}
	return kept.session
}

// units lists the metrics of the suite quick, with their units and directions.
var units = map[string]struct{ unit, better string }{
	"throughput":       {"bit/s", "higher"},
	"latency_p50":      {"s", "lower"},
	"latency_p99":      {"s", "lower"},
	"connection_rate":  {"1/s", "higher"},
	"transaction_rate": {"1/s", "higher"},
	"packet_rate":      {"1/s", "higher"},
	"loss":             {"ratio", "lower"},
	"cpu_per_gb":       {"s/GB", "lower"},
	"cpu_per_op":       {"s", "lower"},
}

func TestSummaryHasDocumentedKeys(t *testing.T) {
	r := decode(t, quickSession(t).json)
	keys := []string{"path", "workload", "client", "metric", "unit", "better", "value", "low", "high", "baseline",
		"ratio", "ratio_low", "ratio_high", "rounds", "invalid", "distinguishable"}
	seen, paths := map[string]bool{}, map[string]bool{}
	for _, row := range r.Summary {
		for _, key := range keys {
			if _, ok := row[key]; !ok {
				t.Errorf("no %q in %v", key, row)
			}
		}
		metric := row["metric"].(string)
		seen[metric], paths[row["path"].(string)] = true, true
		if want, ok := units[metric]; ok && (row["unit"] != want.unit || row["better"] != want.better) {
			t.Errorf("%s is in %v and better %v, want %v", metric, row["unit"], row["better"], want)
		}
		if row["baseline"] != "host" {
			t.Errorf("the baseline is %v, want host", row["baseline"])
		}
	}
	for metric := range units {
		if !seen[metric] {
			t.Errorf("no figure of %s", metric)
		}
	}
	for _, path := range []string{"host", "nat", "proxy", "docker-proxy"} {
		if !paths[path] {
			t.Errorf("no figure of %s", path)
		}
	}
	for _, key := range []string{"kernel", "cpus", "features", "settings"} {
		if r.Host[key] == nil {
			t.Errorf("host has no %q: %v", key, r.Host)
		}
	}
}

func TestEveryRunHasProofAndBalancedLedger(t *testing.T) {
	r := decode(t, quickSession(t).json)
	if want := r.Rounds * 5 * (4 + 1); len(r.Runs) != want {
		t.Errorf("%d runs, want %d: five workloads, four paths, the baseline twice", len(r.Runs), want)
	}
	for _, run := range r.Runs {
		if run.Proof == nil || !run.Proof.OK || run.Proof.Got < run.Proof.Want || run.Proof.Want == 0 {
			t.Errorf("%s %s: no proof that the traffic took the path: %+v, %v", run.Path, run.Workload, run.Proof,
				run.Invalid)
		}
		checkLedger(t, run)
	}
}

// checkLedger checks that all CPU time is accounted for, by kind and by process, and that the
// ledger's error is calculated correctly.
func checkLedger(t *testing.T, r run) {
	t.Helper()
	l := r.Ledger
	sum := func(names ...string) (total float64) {
		for _, name := range names {
			v, ok := l[name]
			if !ok {
				t.Errorf("%s %s: the ledger has no %q: %v", r.Path, r.Workload, name, l)
			}
			total += v
		}
		return total
	}
	const rounding = 1e-6
	busy := sum("busy")
	if kinds := sum("user", "system", "irq", "softirq", "steal"); math.Abs(kinds-busy) > rounding {
		t.Errorf("%s %s: the kinds of CPU time are %v, busy %v", r.Path, r.Workload, kinds, busy)
	}
	if who := sum("client", "server", "proxy", "kernel_threads", "laboratory", "other",
		"unattributed"); math.Abs(who-busy) > rounding {
		t.Errorf("%s %s: the processes' CPU time is %v, busy %v", r.Path, r.Workload, who, busy)
	}
	if busy > 0 && math.Abs(l["error"]-math.Abs(l["unattributed"])/busy) > rounding {
		t.Errorf("%s %s: the ledger's error is %v, unattributed %v of %v", r.Path, r.Workload, l["error"],
			l["unattributed"], busy)
	}
	if proxied := r.Path == "proxy" || r.Path == "docker-proxy"; proxied && l["proxy"] == 0 {
		t.Errorf("%s %s: no CPU time of the proxy", r.Path, r.Workload)
	}
}

func TestBaselineRunsTwiceInEachRound(t *testing.T) {
	type inRound struct {
		workload string
		round    int
	}
	groups := map[inRound][]run{}
	runs := decode(t, quickSession(t).json).Runs
	if !slices.IsSortedFunc(runs, func(a, b run) int { return a.Round - b.Round }) {
		t.Error("rounds are not in sequence")
	}
	for _, r := range runs {
		k := inRound{r.Workload, r.Round}
		groups[k] = append(groups[k], r)
	}
	for k, group := range groups {
		first, last := group[0], group[len(group)-1]
		if first.Path != "host" || first.Half != 1 || last.Path != "host" || last.Half != 2 {
			t.Errorf("%v: from %s (half %d) to %s (half %d), want the baseline first and last", k, first.Path,
				first.Half, last.Path, last.Half)
		}
		for i, r := range group {
			if r.Order != i || (r.Path != "host" && r.Half != 0) {
				t.Errorf("%v: %s at place %d has order %d and half %d", k, r.Path, i, r.Order, r.Half)
			}
		}
	}
}

// TestSeedDeterminesOrder checks that the same seed gives the same order of runs, and another seed
// another order.
func TestSeedDeterminesOrder(t *testing.T) {
	r := newRoom(t)
	order := func(seed string) []string {
		o := r.run("lab", "run", "nat", "routed", "--client", "peer", "--workload", "tcp-rr,udp-rr",
			"--rounds", "3", "--duration", "10ms", "--seed", seed, "-o", "json")
		if o.code > 1 { // on a busy machine, a path may have no valid run
			o.expect(t, 0, nil)
		}
		var all []string
		for _, run := range decode(t, []byte(o.stdout)).Runs {
			all = append(all, fmt.Sprint(run.Round, run.Order, run.Workload, run.Path))
		}
		return slices.Compact(all) // without the repetitions of disturbed runs
	}
	first, again := order("1"), order("1")
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("the same seed gives another order:\n%s", diff)
	}
	if slices.Equal(first, order("2")) {
		t.Error("another seed gives the same order")
	}
}

func TestOutputJSONEqualsFile(t *testing.T) {
	s := quickSession(t)
	if diff := cmp.Diff(string(s.json), string(s.stdout)); diff != "" {
		t.Errorf("--json (-) and -o json (+) differ:\n%s", diff)
	}
}

// network matches markup that makes a page load something.
var network = regexp.MustCompile(`(?i)(src|href|action|data)\s*=\s*["']?\s*[^"'#> ]|url\(|@import|<link|<iframe|fetch\(|XMLHttpRequest`)

func TestPageNeedsNoNetwork(t *testing.T) {
	s := quickSession(t)
	markup := regexp.MustCompile(`(?s)<script type="application/json"[^>]*>.*?</script>`).ReplaceAll(s.html, nil)
	if len(markup) == len(s.html) {
		t.Fatal("the page does not embed its JSON")
	}
	if found := network.Find(markup); found != nil {
		t.Errorf("the page refers to something outside: %q", found)
	}
	for _, want := range []string{"<svg", "docker-proxy", "prefers-color-scheme", "@media print"} {
		if !bytes.Contains(markup, []byte(want)) {
			t.Errorf("the page has no %q", want)
		}
	}
}

func TestPageEmbedsTheReport(t *testing.T) {
	s := quickSession(t)
	m := regexp.MustCompile(`(?s)<script type="application/json"[^>]*>(.*?)</script>`).FindSubmatch(s.html)
	if m == nil {
		t.Fatal("the page does not embed its JSON")
	}
	if diff := cmp.Diff(decode(t, s.json), decode(t, m[1])); diff != "" {
		t.Errorf("the report (-) and the page (+) differ:\n%s", diff)
	}
}

func TestBenchmarkLinesParse(t *testing.T) {
	s := quickSession(t)
	valid := 0
	for _, run := range decode(t, s.json).Runs {
		if len(run.Invalid) == 0 {
			valid++
		}
	}
	lines, unitsSeen := 0, map[string]bool{}
	reader := benchfmt.NewReader(bytes.NewReader(s.bench), "quick")
	for reader.Scan() {
		switch rec := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			t.Error(rec)
		case *benchfmt.Result:
			lines++
			if !strings.HasPrefix(string(rec.Name.Full()), "Path/path=") {
				t.Errorf("benchmark %s names no path", rec.Name.Full())
			}
			for _, v := range rec.Values {
				unitsSeen[v.Unit] = true
			}
		}
	}
	if reader.Err() != nil || lines != valid {
		t.Errorf("%d lines for %d valid runs, %v", lines, valid, reader.Err())
	}
	for _, unit := range []string{"bit/s", "conn/s", "packets/s", "cpu-s/GB"} {
		if !unitsSeen[unit] {
			t.Errorf("no figure in %s; there are %v", unit, unitsSeen)
		}
	}
}

// TestIperf3RoundTrip: what is exported as iperf3's JSON is read again with
// the same figures.
func TestIperf3RoundTrip(t *testing.T) {
	s := quickSession(t)
	var want, got []float64
	for _, run := range decode(t, s.json).Runs {
		if v, ok := run.Metrics["throughput"]; ok && run.Workload == "tcp-bulk" {
			want = append(want, v)
		}
	}
	r := newRoom(t)
	r.write("exported.json", s.iperf3)
	out := r.succeed("lab", "report", r.file("exported.json"), "-o", "json")
	for _, run := range decode(t, []byte(out)).Runs {
		got = append(got, run.Metrics["throughput"])
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got) == 0 {
		t.Errorf("exported (-), imported (+):\n%s", diff)
	}
}
