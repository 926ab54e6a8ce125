package report

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares got with testdata/name.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; if this is intended, run go test with -update\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

func tableOf(t *testing.T, r *result.Report, o Options) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := Table(&out, r, o); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestTable(t *testing.T) {
	golden(t, "quick.table", tableOf(t, synthQuick.report(), Options{Full: "fairlead-quick.html"}))
	golden(t, "publish.table", tableOf(t, synthPublish.report(), Options{}))
	golden(t, "waterfall.table", tableOf(t, synthWaterfall.report(), Options{}))
	golden(t, "quick-color.table", tableOf(t, synthQuick.report(), Options{Color: true}))
}

func TestTableKeepsItsWidth(t *testing.T) {
	for _, w := range []int{60, 80, 120} {
		for line := range strings.Lines(string(tableOf(t, synthPublish.report(), Options{Width: w}))) {
			if strings.Contains(line, "±") && !strings.Contains(line, "noise") && width(line)-1 > w {
				t.Errorf("width %d: a line of %d: %s", w, width(line)-1, line)
			}
		}
	}
}

func TestTableColumnsAreAligned(t *testing.T) {
	margins := func(line string) string {
		return strings.Map(func(r rune) rune {
			if r == '±' {
				return r
			}
			return ' '
		}, strings.TrimRight(line, "\n0123456789.!"))
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(tableOf(t, synthQuick.report(), Options{Width: 200}))) {
		name, _, _ := strings.Cut(line, " ")
		if slices.Contains([]string{"host", "routed", "nat", "proxy"}, name) {
			rows[name] = margins(line)
		}
	}
	for name, row := range rows {
		if row != rows["host"] || strings.Count(row, "±") != 5 {
			t.Errorf("%s: %q, host: %q", name, row, rows["host"])
		}
	}
	if len(rows) != 4 {
		t.Errorf("%d rows", len(rows))
	}
}

func TestTableOfPathWithoutValidRound(t *testing.T) {
	r := synthQuick.report()
	for i := range r.Runs {
		if r.Runs[i].Path == "nat" {
			r.Runs[i].Invalid, r.Runs[i].Metrics = []string{"wrong path"}, nil
		}
	}
	r.Summary = stats.Summarize(r.Runs, "host", r.Seed)
	text := string(tableOf(t, r, Options{}))
	if !strings.Contains(text, "—") || !strings.Contains(text, "discarded rounds: 49") ||
		!strings.Contains(text, "wrong path") {
		t.Errorf("the path is missing:\n%s", text)
	}
}

func TestTableOfEmptyReport(t *testing.T) {
	text := string(tableOf(t, &result.Report{Suite: "quick"}, Options{}))
	if !strings.Contains(text, "noise floor unknown") {
		t.Errorf("got:\n%s", text)
	}
}
