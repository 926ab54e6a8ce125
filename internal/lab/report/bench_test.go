package report

import (
	"bytes"
	"testing"

	"golang.org/x/perf/benchfmt"
)

// TestBenchIsReadByBenchstat reads the lines with the parser of benchstat.
func TestBenchIsReadByBenchstat(t *testing.T) {
	r := synthQuick.report()
	var out bytes.Buffer
	if err := Bench(&out, r); err != nil {
		t.Fatal(err)
	}
	lines, seen := 0, map[string]int{}
	reader := benchfmt.NewReader(&out, "lab")
	for reader.Scan() {
		switch rec := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			t.Errorf("benchstat cannot read it: %v", rec)
		case *benchfmt.Result:
			lines++
			seen[string(rec.Name)]++
			if rec.GetConfig("suite") != "quick" || len(rec.Values) == 0 {
				t.Errorf("%s: suite %q, %d values", rec.Name, rec.GetConfig("suite"), len(rec.Values))
			}
		}
	}
	if lines != len(r.Runs)-1 {
		t.Errorf("%d lines for %d runs, one of them invalid", lines, len(r.Runs))
	}
	if n := seen["Path/path=nat/client=remote/wl=tcp-rr-block"]; n != 12 {
		t.Errorf("%d rounds of nat in %v", n, seen)
	}
	if unit := reader.Units()[benchfmt.UnitMetadataKey{Unit: "bit/s", Key: "better"}]; unit == nil ||
		unit.Value != "higher" {
		t.Errorf("benchstat treats less throughput as better: %v", unit)
	}
}
