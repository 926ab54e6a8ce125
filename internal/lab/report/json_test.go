package report

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"fairlead/internal/lab/result"

	"github.com/google/go-cmp/cmp"
)

func TestJSONRoundTrip(t *testing.T) {
	want := synthPublish.report()
	var first, second bytes.Buffer
	if err := WriteJSON(&first, want); err != nil {
		t.Fatal(err)
	}
	text := first.String()
	got, err := ReadJSON(&first)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := WriteJSON(&second, got); err != nil || second.String() != text {
		t.Errorf("written again, the report differs (%v)", err)
	}
}

func TestJSONHasRequiredKeys(t *testing.T) {
	var out bytes.Buffer
	if err := WriteJSON(&out, synthQuick.report()); err != nil {
		t.Fatal(err)
	}
	for _, key := range strings.Fields(`host runs summary path workload client metric unit better value low high
		baseline ratio ratio_low ratio_high rounds invalid distinguishable format`) {
		if !strings.Contains(out.String(), `"`+key+`":`) {
			t.Errorf("no key %q", key)
		}
	}
}

func TestReadJSONRefusesOtherFiles(t *testing.T) {
	cases := map[string]string{
		``:                                     "not JSON",
		`{"format": 1, "suite": "quick", "run`: "incomplete",
		`{"name": "something"}`:                "not a laboratory report",
		`[1, 2]`:                               "not a laboratory report",
		`{"format": 9, "suite": "quick"}`:      "format 9",
		`{"format": 0, "suite": "quick"}`:      "format 0",
		`{"start": {}, "intervals": [], "end": {}}`:  "iperf3",
		`{"format": 1, "suite": "quick", "runs": 3}`: "damaged",
	}
	for text, want := range cases {
		_, err := ReadJSON(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestWriteJSONReturnsError(t *testing.T) {
	r := &result.Report{Suite: "quick", Summary: []result.Summary{{Value: math.NaN()}}}
	if err := WriteJSON(&bytes.Buffer{}, r); err == nil || !strings.HasPrefix(err.Error(), "write report: ") {
		t.Errorf("got %v", err)
	}
}

// TestJSONKeepsItsLayout compares a small synthetic session with a file, because
// programs of users read this layout.
func TestJSONKeepsItsLayout(t *testing.T) {
	small := synthQuick
	small.suite, small.rounds, small.workloads, small.paths = "synthetic", 2, []string{"tcp-bulk", "udp-pps"},
		[]string{"host", "nat"}
	var out bytes.Buffer
	if err := WriteJSON(&out, small.report()); err != nil {
		t.Fatal(err)
	}
	golden(t, "synthetic.json", out.Bytes())
}
