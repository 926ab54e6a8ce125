package script_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead/test/script"
)

const measured = "# Results\n\n```text\n" +
	"scale · Linux 6.18 · 4 CPUs · 10 rounds · seed 7      A/A noise floor ±8.6 %\n```\n\n```text\n" +
	"quick · Linux 6.12 · 2 CPUs · 10 rounds · seed 7      A/A noise floor ±8.6 %\n\n" +
	"client across the wire  bulk                round trip          connect             small packets     CPU\n" +
	"path                    Gbit/s  × host      p50 µs  × host          /s  × host      kpps  × host       s/GB  × host\n" +
	"host                      33.0  1.00 ±0.08    13.1  1.00 ±0.02  21 089  1.00 ±0.04   268  1.00 ±0.04  0.485  1.00 ±0.08\n" +
	"hand-dnat                 31.8 ≈0.95 ±0.04    14.0  1.07 ±0.01  19 570 ≈0.91 ±0.01   251 ≈0.91 ±0.08  0.503 ≈1.05 ±0.04\n" +
	"proxy                     16.6  0.50 ±0.03    31.5  2.43 ±0.05   7 397  0.35 ±0.01   222  0.83 ±0.06  0.952 12.98 ±0.10\n" +
	"\n≈ not distinguishable from host     ! discarded rounds: 0\n```\n"

func summaryOf(t *testing.T, page, marker string) (string, error) {
	t.Helper()
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "results.md"), []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := script.Summary(root, marker)
	return string(got), err
}

func TestSummary(t *testing.T) {
	got, err := summaryOf(t, measured, "results results.md quick")
	if err != nil {
		t.Fatal(err)
	}
	want := `| Linux 6.12, 2 CPUs | throughput | round trip | new connections | CPU time |
|---|---|---|---|---|
| ` + "`host`" + ` | 33.0 Gbit/s | 13.1 µs | 21 089 /s | 0.485 s/GB |
| ` + "`hand-dnat`" + ` | ≈0.95 ±0.04 | 1.07 ±0.01 | ≈0.91 ±0.01 | ≈1.05 ±0.04 |
| ` + "`proxy`" + ` | 0.50 ±0.03 | 2.43 ±0.05 | 0.35 ±0.01 | 12.98 ±0.10 |
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSummaryRefuses(t *testing.T) {
	for name, c := range map[string]struct{ page, marker, says string }{
		"another marker": {measured, "results results.md", "want results FILE SUITE"},
		"no such file":   {measured, "results missing.md quick", "no such file"},
		"no such suite":  {measured, "results results.md publish", `no block begins with "publish · "`},
		"no table":       {measured, "results results.md scale", "does not contain a table"},
		"no column": {strings.Replace(measured, "bulk", "load", 1), "results results.md quick",
			`no column "bulk"`},
		"no figure": {strings.Replace(measured, "16.6  0.50 ±0.03", "", 1), "results results.md quick",
			"path proxy has 4 figures"},
		"no unit": {strings.Replace(measured, "Gbit/s  × host", "", 1), "results results.md quick",
			"4 units in 5 columns"},
	} {
		if _, err := summaryOf(t, c.page, c.marker); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.says)
		}
	}
}

// TestReadmeSummary: the README's tables have the figures of docs/results.md.
func TestReadmeSummary(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	tables := 0
	want, err := script.Fill(page, func(marker string) ([]byte, error) {
		tables++
		return script.Summary(root, marker)
	})
	if err != nil {
		t.Fatal(err)
	}
	if tables != 2 {
		t.Errorf("the README has %d generated tables, want those of published ports and of outbound connections", tables)
	}
	if diff := cmp.Diff(string(want), string(page)); diff != "" {
		t.Errorf("the README's tables are stale (make generate):\n%s", diff)
	}
}
