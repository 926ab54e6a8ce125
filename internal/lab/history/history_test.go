package history

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead/internal/lab/result"
	"fairlead/test/damage"

	"golang.org/x/sys/unix"
)

var nat = result.Case{Path: "nat", Client: result.Remote, Workload: "tcp-bulk", Tool: "fairlead"}

// session returns the report of a day, with one ratio.
func session(day int, ratio float64) *result.Report {
	return &result.Report{Format: result.Format, Suite: "quick", Duration: 1, Seed: uint64(day),
		Started: time.Date(2026, 11, day, 8, 0, 0, 0, time.UTC).Format(time.RFC3339),
		Host:    result.Host{Kernel: "6.18", CPUs: 2, CPUModel: "model", Fairlead: "v1"},
		Runs:    []result.Run{{Case: nat}},
		Summary: []result.Summary{{Case: nat, Metric: result.Throughput, Baseline: "host", Ratio: ratio,
			RatioLow: ratio * 0.99, RatioHigh: ratio * 1.01, Rounds: 6}}}
}

func TestAppendAndRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "history.jsonl")
	if _, err := Read(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for _, day := range []int{3, 1, 2} {
		if err := Append(file, session(day, 0.9)); err != nil {
			t.Fatal(err)
		}
	}
	if err := Append(file, session(2, 0.9)); !errors.Is(err, ErrRecorded) {
		t.Errorf("the same report again: %v", err)
	}
	all, err := Read(file)
	if err != nil || len(all) != 3 {
		t.Fatalf("%d entries, %v", len(all), err)
	}
	for i, e := range all {
		if e.Time.Day() != i+1 || e.Report.Runs != nil || e.Report.Summary[0].Ratio != 0.9 {
			t.Errorf("entry %d: %+v", i, e)
		}
	}
}

// TestDamagedFile: each damaged line is named, the other entries are read, and an entry that
// is appended changes none of the lines.
func TestDamagedFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history.jsonl")
	if err := Append(file, session(1, 0.9)); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "history.jsonl")
	if err := Append(other, session(2, 0.9)); err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	text := string(good) + "garbage\n\n[1]\n{\"schema\":2}\n{\"schema\":1,\"report\":{\"suite\":\"x\"}}\n" +
		strings.Repeat("x", maxLine+1) + "\n" + string(second) + `{"schema":1,"rep`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Append(file, session(3, 0.8)); err != nil {
		t.Errorf("append to a damaged file: %v", err)
	}
	all, err := Read(file)
	if len(all) != 3 {
		t.Errorf("%d entries, want 3", len(all))
	}
	for line, says := range map[int]string{2: "invalid character", 3: "unexpected end", 4: "correct or delete",
		5: "schema 2", 6: "parsing time", 7: "longer than", 9: "unexpected end"} {
		if want := fmt.Sprintf("line %d: ", line); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("no %q with %q in: %v", want, says, err)
		}
	}
	now, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(now), text+"\n{") {
		t.Errorf("appending changed earlier lines: %v", err)
	}
}

// TestRandomDamages damages a file in random ways. Either all entries are read, or an error names the file, and
// the entries that are read are some of those that were stored. The next session is recorded anyway.
func TestRandomDamages(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history.jsonl")
	for day := range 12 {
		if err := Append(file, session(day+1, 0.9)); err != nil {
			t.Fatal(err)
		}
	}
	sound, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Read(file)
	if err != nil || len(want) != 12 {
		t.Fatalf("%d entries, %v", len(want), err)
	}
	count := 200
	if text := os.Getenv("FAIRLEAD_DAMAGES"); text != "" {
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for round := range count {
		text := damage.Text(random, sound)
		if round == 0 {
			text = sound[:bytes.LastIndexByte(sound[:len(sound)-1], '\n')+1] // the last line is missing
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := Read(file)
		if err == nil && len(all) != len(want) || err != nil && !strings.Contains(err.Error(), file) {
			t.Errorf("round %d: %d entries, %v", round, len(all), err)
		}
		for _, e := range all {
			if !slices.ContainsFunc(want, func(w Entry) bool { return reflect.DeepEqual(w, e) }) {
				t.Errorf("round %d: %+v was not stored", round, e)
			}
		}
		if err := Append(file, session(20, 0.9)); err != nil {
			t.Fatalf("round %d: append: %v", round, err)
		}
		if more, _ := Read(file); len(more) != len(all)+1 {
			t.Errorf("round %d: %d entries, then %d", round, len(all), len(more))
		}
	}
}

// TestFilesThatAreRefused: without waiting, and without a change.
func TestFilesThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{pipe, dir} {
		if _, err := Read(file); err == nil {
			t.Errorf("Read accepts %s", file)
		}
		if err := Append(file, session(1, 1)); err == nil {
			t.Errorf("Append accepts %s", file)
		}
	}
	file := filepath.Join(dir, "history.jsonl")
	infinite := session(1, math.Inf(1))
	undated := session(1, 1)
	undated.Started = ""
	for _, rep := range []*result.Report{infinite, undated} {
		if err := Append(file, rep); err == nil {
			t.Error("Append accepts a report that Read would refuse")
		}
	}
}

// TestWritersAtTheSameTime: no entry is lost or mixed with another one.
func TestWritersAtTheSameTime(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history.jsonl")
	var all sync.WaitGroup
	for day := range 20 {
		all.Go(func() {
			if err := Append(file, session(day+1, 0.9)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if entries, err := Read(file); len(entries) != 20 || err != nil {
		t.Errorf("%d entries, %v", len(entries), err)
	}
}

func TestDefaultFile(t *testing.T) {
	t.Setenv("HOME", "/home/a")
	for state, want := range map[string]string{"": "/home/a/.local/state/fairlead/lab-history.jsonl",
		"relative": "/home/a/.local/state/fairlead/lab-history.jsonl", "/x": "/x/fairlead/lab-history.jsonl"} {
		t.Setenv("XDG_STATE_HOME", state)
		if got, err := DefaultFile(); got != want || err != nil {
			t.Errorf("%q: %s, %v, want %s", state, got, err, want)
		}
	}
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("HOME", "") // as in a service of systemd
	if got, err := DefaultFile(); !strings.HasSuffix(got, "/.local/state/fairlead/lab-history.jsonl") || err != nil {
		t.Errorf("without HOME: %s, %v", got, err)
	}
}

// rowsOf returns rows with these ratios; 0 is an entry without a row.
func rowsOf(ratios ...float64) []*result.Summary {
	var rows []*result.Summary
	for _, r := range ratios {
		if r == 0 {
			rows = append(rows, nil)
			continue
		}
		s := session(1, r).Summary[0]
		rows = append(rows, &s)
	}
	return rows
}

func TestTrends(t *testing.T) {
	for name, c := range map[string]struct {
		ratios  []float64
		metric  result.Metric
		verdict Verdict
		since   int
		blocks  string
	}{
		"too few":       {[]float64{0.9, 0.9, 0.5}, result.Throughput, Unknown, -1, "██▁"},
		"steady":        {[]float64{0.9, 0.91, 0.89, 0.9, 0.92, 0.9}, result.Throughput, Steady, -1, "▄▅▃▄▆▄"},
		"worse":         {[]float64{0.9, 0.91, 0.89, 0.9, 0.7, 0.71}, result.Throughput, Worse, 4, "████▁▁"},
		"better":        {[]float64{0.9, 0.91, 0.89, 0.9, 1.4, 1.41}, result.Throughput, Better, 4, "▁▁▁▁██"},
		"longer":        {[]float64{1.5, 1.51, 1.49, 0, 1.5, 2, 2}, result.LatencyP50, Worse, 5, "▁▁▁·▁██"},
		"once":          {[]float64{0.9, 0.91, 0.89, 0.9, 0.7, 0.9}, result.Throughput, Steady, -1, "████▁█"},
		"nothing known": {nil, result.Throughput, Unknown, -1, ""},
	} {
		rows := rowsOf(c.ratios...)
		got := TrendOf(rows, c.metric)
		if got.Verdict != c.verdict || got.Since != c.since || Blocks(rows) != c.blocks {
			t.Errorf("%s: %+v %q, want %s since %d %q", name, got, Blocks(rows), c.verdict, c.since, c.blocks)
		}
	}
}

// TestTrendsOfNoise: of the histories without a change, few show one.
func TestTrendsOfNoise(t *testing.T) {
	const histories = 500
	changed := 0
	for seed := range uint64(histories) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var ratios []float64
		for range 12 {
			ratios = append(ratios, math.Exp(0.05*rng.NormFloat64()))
		}
		if v := TrendOf(rowsOf(ratios...), result.Throughput).Verdict; v != Steady {
			changed++
		}
	}
	if changed > histories/40 {
		t.Errorf("%d of %d histories without a change show one", changed, histories)
	}
}

// TestOnlyAlikeSessionsAreCompared: another suite, machine or window length is another group.
func TestOnlyAlikeSessionsAreCompared(t *testing.T) {
	other := []func(*result.Report){func(r *result.Report) { r.Suite = "publish" },
		func(r *result.Report) { r.Host.CPUs = 8 }, func(r *result.Report) { r.Duration = 2 },
		func(r *result.Report) { r.Family = result.IPv6 },
		func(r *result.Report) { r.Netem = &result.Netem{Delay: 0.01} },
		func(r *result.Report) { r.Machines = []result.Machine{{Host: r.Host}, {Host: r.Host}} }}
	entries := []Entry{{Report: *session(1, 0.9)}, {Report: *session(2, 0.8)}}
	for i, change := range other {
		r := session(3+i, 0.1)
		change(r)
		entries = append(entries, Entry{Report: *r})
	}
	if n := len(Groups(entries)); n != 1+len(other) {
		t.Errorf("%d groups", n)
	}
	if past := Past(entries, session(9, 1), nat, result.Throughput); len(past) != 2 || past[1].Ratio != 0.8 {
		t.Errorf("past %+v", past)
	}
}
