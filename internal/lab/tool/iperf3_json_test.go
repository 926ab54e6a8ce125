package tool

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/internal/lab/result"
)

// TestFromIperf3 reads the real output of iperf3 3.12 on a private loopback (the
// host's name and the cookie are replaced).
func TestFromIperf3(t *testing.T) {
	cases := []struct {
		file, workload string
		rate, loss     float64
	}{
		{"iperf3-tcp.json", "tcp-bulk", iperf3Rate(t, "iperf3-tcp.json", "sum_received"), -1},
		{"iperf3-tcp-reverse.json", "tcp-bulk-down", iperf3Rate(t, "iperf3-tcp-reverse.json", "sum_received"), -1},
		{"iperf3-bidir.json", "tcp-bulk-both", iperf3Rate(t, "iperf3-bidir.json", "sum_received") +
			iperf3Rate(t, "iperf3-bidir.json", "sum_received_bidir_reverse"), -1},
		{"iperf3-udp.json", "udp-bulk", iperf3Rate(t, "iperf3-udp.json", "sum_received"), 8.0 / 17843},
	}
	for _, c := range cases {
		run := readFile(t, c.file)
		if run.Workload != c.workload || run.Tool != "iperf3" || run.Metrics[result.Throughput] != c.rate ||
			run.Seconds < 1 {
			t.Errorf("%s: %+v", c.file, run)
		}
		loss, has := run.Metrics[result.Loss]
		if has != (c.loss >= 0) || has && math.Abs(loss-c.loss) > 1e-9 {
			t.Errorf("%s: loss %g, %v", c.file, loss, has)
		}
		if !strings.Contains(run.Raw, "sum_received") || !strings.Contains(run.Notes[0], "own processes only") {
			t.Errorf("%s: raw output or note is missing", c.file)
		}
	}
}

func readFile(t *testing.T, name string) result.Run {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	runs, err := FromIperf3(bytes.NewReader(text))
	if err != nil || len(runs) != 1 {
		t.Fatalf("%s: %d runs, %v", name, len(runs), err)
	}
	return runs[0]
}

// iperf3Rate reads one sum without the types under test.
func iperf3Rate(t *testing.T, name, sum string) float64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ End map[string]json.RawMessage }
	var s struct {
		Rate float64 `json:"bits_per_second"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(doc.End[sum], &s); err != nil {
		t.Fatal(err)
	}
	return s.Rate
}

func TestFromIperf3CountsDocumentsAsRounds(t *testing.T) {
	text, err := os.ReadFile("testdata/iperf3-tcp.json")
	if err != nil {
		t.Fatal(err)
	}
	runs, err := FromIperf3(bytes.NewReader(bytes.Repeat(text, 3)))
	if err != nil || len(runs) != 3 || runs[2].Round != 3 {
		t.Errorf("%d runs, %v", len(runs), err)
	}
}

func TestFromIperf3OfOldVersions(t *testing.T) {
	old := `{"start":{"test_start":{"protocol":"UDP"}},"intervals":[],"end":{"streams":[],
		"sum":{"seconds":1,"bits_per_second":100,"lost_percent":25}}}`
	runs, err := FromIperf3(strings.NewReader(old))
	if err != nil || runs[0].Metrics[result.Throughput] != 75 || runs[0].Metrics[result.Loss] != 0.25 {
		t.Errorf("%+v, %v", runs, err)
	}
}

func TestFromIperf3RefusesFailedRuns(t *testing.T) {
	refused, err := os.ReadFile("testdata/iperf3-refused.json")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		string(refused):                       "Connection refused",
		"":                                    "empty",
		"iperf 3.12\n":                        "not the JSON",
		`{"suite": "quick"}`:                  "no sum_received",
		`{"start": [], "end": {}}`:            "not the output of iperf3",
		`{"start": {}, "intervals": [], "end`: "not the JSON",
	} {
		if _, err := FromIperf3(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}
