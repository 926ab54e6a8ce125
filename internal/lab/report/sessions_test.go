package report

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"
)

// inSessions returns the report of four sessions, in each of which the path nat has another
// throughput.
func inSessions() *result.Report {
	r := synthQuick.report()
	one := r.Runs
	r.Runs, r.Sessions = nil, 4
	for session := range r.Sessions {
		for _, run := range one {
			run.Session = session + 1
			metrics := map[result.Metric]float64{}
			for m, x := range run.Metrics {
				if run.Path == "nat" && m == result.Throughput {
					x *= math.Exp(0.1 * float64(session))
				}
				metrics[m] = x
			}
			run.Metrics = metrics
			r.Runs = append(r.Runs, run)
		}
	}
	r.Summary = stats.Summarize(r.Runs, "host", r.Seed)
	return r
}

// TestBothIntervalsAreShown: in the table, on the page, in the JSON and by a comparison.
func TestBothIntervalsAreShown(t *testing.T) {
	r := inSessions()
	nat := find(r, result.Case{Path: "nat", Client: result.Remote, Workload: "tcp-bulk", Tool: r.Runs[0].Tool},
		result.Throughput)
	if nat == nil || nat.SessionLow >= nat.RatioLow || nat.SessionHigh <= nat.RatioHigh {
		t.Fatalf("row %+v", nat)
	}
	var table, page, text, compared bytes.Buffer
	read, err := func() (*result.Report, error) {
		if err := WriteJSON(&text, r); err != nil {
			return nil, err
		}
		return ReadJSON(&text)
	}()
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{Table(&table, read, Options{}), HTML(&page, read),
		CompareTable(&compared, Compare(read, inSessions(), 1), Options{})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, shown := range map[string][2]string{
		"table":      {table.String(), formatMargin(nat)},
		"heading":    {table.String(), "4 sessions of 12 rounds"},
		"legend":     {table.String(), "second with the differences between sessions"},
		"page":       {page.String(), sessionSpan(nat)},
		"comparison": {compared.String(), "95 % with sessions"},
	} {
		if !strings.Contains(shown[0], shown[1]) {
			t.Errorf("%s: no %q in:\n%s", name, shown[1], shown[0])
		}
	}
	if strings.Count(formatMargin(nat), "±") != 2 {
		t.Errorf("margin %q", formatMargin(nat))
	}
}
