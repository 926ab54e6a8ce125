package report

import (
	"bytes"
	"strings"
	"testing"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"
)

// failovers returns a session in which one round in three was worse than the rest,
// and no request failed on balance:ebpf.
func failovers() *result.Report {
	r := &result.Report{Suite: "balancer", Question: "What do clients notice?", Rounds: 3,
		Paths: []string{"routed", "balance:ebpf", "balance:nft"}}
	add := func(round int, path string, failed, notice float64) {
		run := result.Run{Case: result.Case{Path: path, Client: result.Remote, Workload: "failover-killed",
			Tool: result.OwnTool}, Round: round, Seconds: 5,
			Metrics: map[result.Metric]float64{result.Requests: 5000, result.FailedRequests: failed,
				result.RecoveryTime: failed / 300}}
		if path == "routed" {
			run.Half = 1
		}
		if notice > 0 {
			run.Metrics[result.NoticeTime] = notice
		}
		r.Runs = append(r.Runs, run)
	}
	for round := 1; round <= 3; round++ {
		add(round, "routed", 3000, 0)
		add(round, "balance:ebpf", 0, 0.1)
	}
	add(1, "balance:nft", 501, 1.5)
	add(2, "balance:nft", 702, 2.25)
	add(3, "balance:nft", 503, 1.25)
	r.Summary = stats.Summarize(r.Runs, "routed", 1)
	return r
}

// TestFailoversShowWorstRound: the table has no ratios and no noise floor.
func TestFailoversShowWorstRound(t *testing.T) {
	text := string(tableOf(t, failovers(), Options{}))
	for _, want := range []string{
		"failover killed  failover killed, notice time  failover killed, recovery time\n",
		"path                    failed   worst      s   worst",
		"routed                   3 000  3 000                                  10.0  10.0\n",
		"balance:ebpf                 0      0    0.10  0.10                     0.0   0.0\n",
		"balance:nft                503    702    1.50  2.25                     1.7   2.3\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %q in\n%s", want, text)
		}
	}
	for _, no := range []string{"×", "±", "noise"} {
		if strings.Contains(text, no) {
			t.Errorf("unexpected %q in\n%s", no, text)
		}
	}
}

// TestFailoversOnThePage: the page has no plot of ratios for them.
func TestFailoversOnThePage(t *testing.T) {
	var page bytes.Buffer
	if err := HTML(&page, failovers()); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	if !strings.Contains(text, ">worst<") || !strings.Contains(text, "702") ||
		strings.Contains(text, "no valid round") {
		t.Errorf("the page lacks the worst rounds:\n%.3000s", text)
	}
}

// TestFailoversHaveNoRatioBetweenSessions: no request failed before and some do
// now, which no ratio can express.
func TestFailoversHaveNoRatioBetweenSessions(t *testing.T) {
	before, after := failovers(), failovers()
	for i := range after.Runs {
		after.Runs[i].Metrics[result.FailedRequests] += 7
	}
	after.Summary = stats.Summarize(after.Runs, "routed", 1)
	changes := Compare(before, after, 1).Changes
	if len(changes) == 0 {
		t.Error("nothing is compared")
	}
	for _, c := range changes {
		if c.Verdict != "" || c.Ratio != 0 || c.Metric == result.FailedRequests && c.New != c.Old+7 {
			t.Errorf("%+v", c)
		}
	}
}
