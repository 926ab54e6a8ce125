package report

import (
	"bytes"
	"strings"
	"testing"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"
)

// discardAll discards the runs of a session that match.
func discardAll(r *result.Report, matches func(result.Run) bool, why string) {
	for i := range r.Runs {
		if matches(r.Runs[i]) {
			r.Runs[i].Invalid, r.Runs[i].Metrics = []string{why}, nil
		}
	}
	r.Summary = stats.Summarize(r.Runs, "host", r.Seed)
}

// TestVerdict: the first sentence says whether the session went well and which figures
// may be believed, on the terminal and on the page.
func TestVerdict(t *testing.T) {
	for name, s := range map[string]struct {
		change func(*result.Report)
		begins string
		class  string
		failed string
	}{
		"good": {func(*result.Report) {},
			"Good run: believe its ratios, in which two measurements of host itself differ by at most 1.7 %. 239 of 240 " +
				"runs count.", "better", ""},
		"nothing": {func(r *result.Report) {
			discardAll(r, func(result.Run) bool { return true },
				"build "+strings.Repeat("x", 200)+":\nno controller.\n")
		}, "Nothing was measured: all 240 runs were discarded. Most frequent reason: build xxxxxx", "worse",
			"nothing was measured: all 240 runs were discarded: build " + strings.Repeat("x", 54) + " … " +
				strings.Repeat("x", 124) + ": no controller"},
		"no run": {func(r *result.Report) { r.Runs, r.Summary = nil, nil }, "Nothing was measured.", "worse",
			"nothing was measured"},
		"a part": {func(r *result.Report) {
			discardAll(r, func(x result.Run) bool { return x.Path == "nat" && x.Workload == "tcp-crr" }, "wrong path")
		}, "Only a part was measured: 1 of 16 measurements have no figure. Most frequent reason: wrong path. The rest is " +
			"a good run: believe its ratios, ", "worse",
			"1 of 16 measurements have no figure: 12 × nat, connect, client across the wire: wrong path"},
		"one noisy column": {func(r *result.Report) {
			for i := range r.Summary {
				if r.Summary[i].Metric == result.PacketRate {
					r.Summary[i].Noise = 0.34
				}
			}
		}, "Good run except for small packets: do not believe the ratios there, because two measurements of host " +
			"itself differ by up to 34.0 %. Elsewhere two measurements of host itself differ by at most 1.7 %. ", "same", ""},
		"one quiet column": {func(r *result.Report) {
			for i := range r.Summary {
				if r.Summary[i].Metric != result.PacketRate {
					r.Summary[i].Noise = 0.34
				}
			}
		}, "Doubtful run: believe only the ratios of small packets, in which two measurements of host itself differ by " +
			"at most ", "worse", ""},
		"one round": {func(r *result.Report) {
			discardAll(r, func(x result.Run) bool { return x.Round > 1 }, "ended")
		}, "Doubtful run: do not believe its ratios, because it takes two valid rounds to see how exact they are.",
			"worse", ""},
		"only noisy columns": {func(r *result.Report) {
			for i := range r.Summary {
				r.Summary[i].Noise = 0.86
			}
		}, "Doubtful run: believe only the differences that the next sentences name, because two measurements of host " +
			"itself differ by up to 86.0 %.", "worse", ""},
		"busy machine": {func(r *result.Report) {
			for _, run := range r.Runs {
				run.Ledger.Other = 0.3
			}
		}, "Usable run: believe the ratios, in which ", "same", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := synthQuick.report()
			s.change(r)
			if got := conclude(r); !strings.HasPrefix(got.Text, s.begins) || got.Class != s.class {
				t.Errorf("got %q", got)
			}
			failed := ""
			if err := Unmeasured(r); err != nil {
				failed = err.Error()
			}
			if failed != s.failed {
				t.Errorf("got the error %q, want %q", failed, s.failed)
			}
			if text := string(tableOf(t, r, Options{Width: 1000})); !strings.HasPrefix(text, s.begins) {
				t.Errorf("the table does not begin with the verdict:\n%s", text)
			}
			if text := htmlOf(t, r); !strings.Contains(text, `</h1>`+"\n"+`<p class="verdict `+s.class+`">`+s.begins) {
				t.Errorf("the page does not begin with the verdict:\n%.1500s", text[strings.Index(text, "<h1>"):])
			}
		})
	}
}

// TestVerdictWithoutRatios: figures that are not compared have no noise floor.
func TestVerdictWithoutRatios(t *testing.T) {
	if got := conclude(failovers()); got.Text != "Good run: its figures have no ratios, so compare the medians and "+
		"the worst rounds. All 9 runs count." || got.Class != "better" {
		t.Errorf("got %q", got)
	}
}

// TestImportedFigures: nothing is claimed about a machine that is not known.
func TestImportedFigures(t *testing.T) {
	r := &result.Report{Suite: "iperf3", Rounds: 1, Runs: []result.Run{{Case: result.Case{Path: "x",
		Client: result.Remote, Workload: "tcp-bulk", Tool: "iperf3"}, Round: 1,
		Metrics: map[result.Metric]float64{result.Throughput: 1e9}}}}
	r.Summary = stats.Summarize(r.Runs, "", 0)
	for kind, text := range map[string]string{"table": string(tableOf(t, r, Options{})), "page": htmlOf(t, r)} {
		for _, no := range []string{"0 CPU", "0 ×", "seed 0", "noise floor ", "0.0 GiB", "Linux \u00b7",
			"windows of 0"} {
			if strings.Contains(text, no) {
				t.Errorf("the %s has %q:\n%.3000s", kind, no, text)
			}
		}
		if !strings.Contains(text, "Imported figures: there is no baseline") {
			t.Errorf("the %s does not say that the figures are imported:\n%.3000s", kind, text)
		}
	}
}

// TestNoiseFloorIsThatOfComparedColumns: the least and the greatest floor are printed
// with their columns. A column that is not compared has no part in it.
func TestNoiseFloorIsThatOfComparedColumns(t *testing.T) {
	r := synthWaterfall.report()
	for i := range r.Summary {
		s := &r.Summary[i]
		switch {
		case s.Metric == result.Throughput: // at a fixed rate, which is the same on every path
			s.Noise = 0.9
		case s.Metric == result.LatencyP50:
			s.Noise = 0.011
		case s.Metric == result.CPUPerGB:
			s.Noise = 0.086
		}
	}
	if got, want := floors(r), "±1.1 % (round trip) to ±8.6 % (CPU)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := conclude(r).Text; !strings.Contains(got, "differ by at most 8.6 %") {
		t.Errorf("got %q", got)
	}
}

// TestAbsentInterval: of rounds that differ too much, no interval is given, and the
// reason is.
func TestAbsentInterval(t *testing.T) {
	two := synthQuick
	two.rounds, two.paths = 2, []string{"host", "nat"}
	r := two.report()
	for i := range r.Runs {
		if x := &r.Runs[i]; x.Path == "nat" && x.Round == 2 && x.Workload == "tcp-crr" {
			x.Metrics[result.ConnectionRate] /= 1000
		}
	}
	r.Summary = stats.Summarize(r.Runs, "host", r.Seed)
	const why = "±? no interval: connect on nat: the 2 rounds differ too much for an interval: measure more rounds"
	table := string(tableOf(t, r, Options{}))
	if !strings.Contains(table, "±?") || !strings.Contains(table, why) {
		t.Errorf("the table does not give the reason:\n%s", table)
	}
	page := htmlOf(t, r)
	shown, _, _ := strings.Cut(page, `id="fairlead-report"`)
	if !strings.Contains(shown, why) || !strings.Contains(shown, "no interval; ") {
		t.Error("the page does not give the reason")
	}
	var raw bytes.Buffer
	if err := WriteJSON(&raw, r); err != nil || !strings.Contains(raw.String(), `"lacks": "the 2 rounds differ`) {
		t.Errorf("the JSON does not give the reason: %v", err)
	}
	for _, text := range []string{table, shown} {
		if strings.Contains(text, "0000000") || strings.Contains(text, "e+") {
			t.Errorf("the report has an interval without meaning:\n%s", text)
		}
	}
}

// TestIntervalOfOlderReport: reports of earlier versions contain such intervals.
func TestIntervalOfOlderReport(t *testing.T) {
	r := synthQuick.report()
	for i := range r.Summary {
		if s := &r.Summary[i]; s.Path == "nat" && s.Metric == result.ConnectionRate {
			s.RatioLow, s.RatioHigh = 1e-21, 7.8e20
		}
	}
	if text := string(tableOf(t, r, Options{})); strings.Contains(text, "0000000") || !strings.Contains(text, "±?") {
		t.Errorf("got:\n%s", text)
	}
}

// TestPublishedFiguresHaveIntervals: the measured ratios beside published ones have
// their intervals and marks.
func TestPublishedFiguresHaveIntervals(t *testing.T) {
	r := synthPublish.report()
	for i := range r.Summary {
		if s := &r.Summary[i]; s.Path == "nat" && s.Workload == "tcp-bulk-up" && s.Client == result.Local {
			s.Distinguishable = false
		}
	}
	found := map[string]string{}
	for _, c := range comparisons(r) {
		found[c.Path+" "+string(c.Metric)] = c.OurRatio
	}
	for at, want := range map[string]string{"nat throughput": "≈ 0.92 ±0.03",
		"docker-proxy throughput": "0.35 ±0.01"} {
		if found[at] != want {
			t.Errorf("%s: got %q, want %q", at, found[at], want)
		}
	}
}

// TestPublishedFiguresAreGrouped: the paths of a figure follow each other, in whatever
// order the suite lists them.
func TestPublishedFiguresAreGrouped(t *testing.T) {
	r := synthPublish.report()
	p := r.Published
	r.Published = []result.Published{p[2], p[4], p[1], p[0], p[3]}
	text := string(tableOf(t, r, Options{}))
	for _, title := range []string{"\nbulk up, throughput, client on the same host\n",
		"\nbulk up, idle CPU, client on the same host\n"} {
		if n := strings.Count(text, title); n != 1 {
			t.Errorf("%d groups %q in\n%s", n, title, text)
		}
	}
}

// TestFarRatioHasItsOwnScale: one great ratio does not change the scale of the other
// drawings.
func TestFarRatioHasItsOwnScale(t *testing.T) {
	drawn := func(r *result.Report) (all []chart) {
		return forests(r, result.Remote, headColumns(r, result.Remote))
	}
	plain, r := drawn(synthQuick.report()), synthQuick.report()
	for i := range r.Summary {
		if s := &r.Summary[i]; s.Path == "proxy" && s.Metric == result.LatencyP50 {
			s.Ratio, s.RatioLow, s.RatioHigh = 182, 150, 220
		}
	}
	for i, ch := range drawn(r) {
		far := ch.Title == "round trip block"
		if strings.HasSuffix(ch.Caption, ", other scale") != far {
			t.Errorf("%s has the caption %q", ch.Title, ch.Caption)
		}
		if nat, before := ch.Dots[2].X, plain[i].Dots[2].X; far == (nat == before) {
			t.Errorf("%s: nat is at %.1f, and at %.1f without the great ratio", ch.Title, nat, before)
		}
	}
}
