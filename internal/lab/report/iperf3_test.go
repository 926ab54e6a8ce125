package report

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/tool"
)

func TestIperf3RoundTrip(t *testing.T) {
	r := synthPublish.report()
	for _, run := range r.Runs {
		if !strings.HasSuffix(result.Kind(run.Workload), "-bulk") {
			continue
		}
		var out bytes.Buffer
		if err := tool.WriteIperf3(&out, run, r.Host); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if !strings.Contains(text, `"fairlead": {`) || !strings.Contains(text, `"softirq"`) {
			t.Fatalf("the figures under the key fairlead are missing:\n%s", text)
		}
		back, err := tool.FromIperf3(&out)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := back[0].Metrics[result.Throughput],
			run.Metrics[result.Throughput]; math.Abs(got/want-1) > 1e-9 {
			t.Errorf("%s: wrote %g, read %g", run.Workload, want, got)
		}
		if got := back[0]; got.Case != run.Case || got.Round != run.Round || got.Half != run.Half ||
			!slices.Equal(got.Invalid, run.Invalid) {
			t.Errorf("wrote %+v, round %d, half %d, read %+v, %d, %d", run.Case, run.Round, run.Half, got.Case,
				got.Round, got.Half)
		}
		if title := `"title": "` + run.Path + ", "; !strings.Contains(text, title) {
			t.Errorf("the title lacks %s in\n%.200s", title, text)
		}
	}
	if err := tool.WriteIperf3(&bytes.Buffer{}, result.Run{Case: result.Case{Workload: "tcp-crr"}},
		r.Host); err == nil {
		t.Error("a connection rate was accepted as a bulk transfer")
	}
}
