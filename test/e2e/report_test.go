package e2e_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReportMatchesRun checks that a stored report gives the same output as the run, in every
// format.
func TestReportMatchesRun(t *testing.T) {
	s := quickSession(t)
	r := newRoom(t)
	r.write("kept.json", s.json)
	out := r.succeed("lab", "report", r.file("kept.json"), "-o", "json",
		"--json", r.file("again.json"), "--html", r.file("again.html"), "--bench", r.file("again.txt"), "--iperf3",
		r.file("again.iperf3"))
	for name, pair := range map[string][2]string{
		"-o json": {string(s.json), out},
		"JSON":    {string(s.json), string(r.read("again.json"))},
		"page":    {string(s.html), string(r.read("again.html"))},
		"bench":   {string(s.bench), string(r.read("again.txt"))},
		"iperf3":  {string(s.iperf3), string(r.read("again.iperf3"))},
	} {
		if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
			t.Errorf("%s of the run (-) differs from that of the report (+):\n%s", name, diff)
		}
	}
	table := r.succeed("lab", "report", r.file("kept.json"))
	for _, want := range []string{"quick", "seed 7", "2 rounds", "noise floor", "host", "nat", "proxy", "docker-proxy",
		"discarded rounds"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table does not contain %q:\n%s", want, table)
		}
	}
}

// TestCompare checks that a comparison has the figures of every path of both sessions, and that a
// session compared with itself shows no change.
func TestCompare(t *testing.T) {
	s := quickSession(t)
	r := newRoom(t)
	r.write("before.json", s.json)
	out := r.succeed("lab", "compare", r.file("before.json"), r.file("before.json"))
	for _, want := range []string{"before", "now", "nat", "proxy", "docker-proxy", "1.000", "≈"} {
		if !strings.Contains(out, want) {
			t.Errorf("the comparison does not contain %q:\n%s", want, out)
		}
	}
	var rows any
	if err := json.Unmarshal([]byte(r.succeed("lab", "compare", r.file("before.json"), r.file("before.json"), "-o",
		"json")), &rows); err != nil {
		t.Error(err)
	}
	r.write("after.json", []byte(tenfold(t, s.json, "nat", "throughput")))
	out = r.succeed("lab", "compare", r.file("before.json"), r.file("after.json"))
	for _, line := range strings.Split(out, "\n") {
		if strings.Contains(line, "throughput") && strings.Contains(line, " nat ") && !strings.Contains(line, "10.0") {
			t.Errorf("nat became ten times as fast, but the comparison prints:\n%s", out)
		}
	}
}

// tenfold multiplies one path's metric in every run of a report.
func tenfold(t *testing.T, text []byte, path, metric string) string {
	t.Helper()
	var report map[string]any
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	for _, r := range report["runs"].([]any) {
		run := r.(map[string]any)
		if m := run["metrics"].(map[string]any); run["path"] == path && m[metric] != nil {
			m[metric] = 10 * m[metric].(float64)
		}
	}
	out, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestReportToDevice checks that a report may be written to a pipe or a device, which must not be
// replaced with a file.
func TestReportToDevice(t *testing.T) {
	s := quickSession(t)
	r := newRoom(t)
	r.write("kept.json", s.json)
	r.sh("mknod " + r.file("null") + " c 1 3")
	r.succeed("lab", "report", r.file("kept.json"), "--json", r.file("null"))
	info, err := os.Lstat(r.file("null"))
	if err != nil || info.Mode()&os.ModeDevice == 0 {
		t.Errorf("the device became %v, %v", info.Mode(), err)
	}
	out := r.succeed("lab", "report", r.file("kept.json"), "--json", "/dev/stdout")
	if !strings.HasPrefix(out, string(s.json)) {
		t.Errorf("the JSON did not go to standard output:\n%.300s", out)
	}
}

// TestHistory: reports are recorded once, and shown with their kernel. A damaged line is named, and
// stays. A condition on a history without entries is refused before anything is measured.
func TestHistory(t *testing.T) {
	s := quickSession(t)
	r := newRoom(t)
	r.write("kept.json", s.json)
	file := r.file("history.jsonl")
	run := []string{"lab", "run", "nat", "--fail-if", "nat.bulk.ratio < history.median - 0.05", "--history-file", file}
	r.refuse(2, []string{"--history"}, run...)
	for range 2 {
		r.succeed("lab", "record", r.file("kept.json"), "--file", file)
	}
	recorded := r.read("history.jsonl")
	if n := strings.Count(string(recorded), "\n"); n != 1 {
		t.Errorf("%d entries of one report, want 1", n)
	}
	shown := r.succeed("lab", "history", "--file", file, "--html", r.file("history.html"))
	for _, want := range []string{"quick", "nat", "bulk, throughput", "1 entry", "6."} {
		if !strings.Contains(shown, want) {
			t.Errorf("the history does not contain %q:\n%s", want, shown)
		}
	}
	if page := string(r.read("history.html")); !strings.Contains(page, "<circle") {
		t.Errorf("the page has no point:\n%s", page)
	}
	var courses []struct{ Points []any }
	if err := json.Unmarshal([]byte(r.succeed("lab", "history", "--file", file, "-o", "json")), &courses); err != nil ||
		len(courses) == 0 || len(courses[0].Points) != 1 {
		t.Errorf("%+v, %v", courses, err)
	}
	r.write("history.jsonl", append(recorded, "garbage\n"...))
	r.refuse(1, []string{"line 2"}, "lab", "history", "--file", file)
	r.refuse(2, []string{"line 2"}, append(run, "--history")...)
	if now := r.read("history.jsonl"); string(now) != string(recorded)+"garbage\n" {
		t.Errorf("the damaged history was changed:\n%s", now)
	}
}
