package report

import (
	"fmt"
	"math"

	"fairlead/internal/lab/result"
)

// visitCharts draws the course of the visits of a web site, per workload: the visits
// in progress and the response time of the probe, in the last valid round of each
// path.
func visitCharts(r *result.Report, client result.Client) []chart {
	var all []chart
	for _, workload := range visitWorkloads(r, client) {
		var runs []result.Run
		for _, path := range pathsOf(r, client) {
			if run := lastWithCourse(r, client, path, workload); run != nil {
				runs = append(runs, *run)
			}
		}
		if len(runs) == 0 {
			continue
		}
		title := workloadTitle(workload)
		all = append(all,
			visitCourse(r, runs, title+": Visits in progress", "visits", func(s result.SiteSample) float64 {
				return float64(s.Concurrent)
			}),
			visitCourse(r, runs, title+": Response time of the probe", "ms", func(s result.SiteSample) float64 {
				return s.Probe * 1e3
			}))
	}
	return all
}

// visitWorkloads lists the workloads with a course, in the order of the runs.
func visitWorkloads(r *result.Report, client result.Client) []string {
	var all []string
	seen := map[string]bool{}
	for _, run := range r.Runs {
		if run.Client == client && run.Site != nil && len(run.Site.Steps) == 0 && !seen[run.Workload] {
			seen[run.Workload] = true
			all = append(all, run.Workload)
		}
	}
	return all
}

// lastWithCourse returns the last valid run, or if there is none the last one.
func lastWithCourse(r *result.Report, client result.Client, path, workload string) *result.Run {
	var last *result.Run
	for i, run := range r.Runs {
		if run.Path != path || run.Client != client || run.Workload != workload || run.Site == nil {
			continue
		}
		if last == nil || len(run.Invalid) == 0 || len(last.Invalid) > 0 {
			last = &r.Runs[i]
		}
	}
	return last
}

// visitCourse draws a value of every sample over the time of the run.
func visitCourse(r *result.Report, runs []result.Run, title, unit string, of func(result.SiteSample) float64) chart {
	ch := chart{Title: title, Unit: unit, Caption: "seconds after the first visit", W: plotWidth, H: plotBottom + 40,
		Text: title + " over the run."}
	most, last := 1.0, 1.0
	for _, run := range runs {
		for _, s := range run.Site.Samples {
			most, last = max(most, of(s)), max(last, s.At)
		}
	}
	x := func(at float64) float64 { return plotLeft + (plotRight-plotLeft)*at/last }
	y := func(v float64) float64 { return plotBottom - 20 - (plotBottom-20-plotTop)*v/most }
	ch.grid(evenTicks(most), y, 1)
	for _, at := range evenTicks(last) {
		ch.label(x(at), plotBottom+16, "middle", "tick", formatTick(at))
	}
	var ends []labelMark
	for _, run := range runs {
		var xs, ys []float64
		for _, s := range run.Site.Samples {
			xs, ys = append(xs, x(s.At)), append(ys, y(of(s)))
			if s.Lost > 0 {
				ch.Dots = append(ch.Dots, dotMark{X: x(s.At), Y: plotTop, R: 3, Cross: true,
					Class: "lost " + pathClass(r, run.Path),
					Hint:  fmt.Sprintf("%s: the probe failed at %.1f s", run.Path, s.At)})
			}
		}
		if len(xs) == 0 {
			continue
		}
		ch.curve(xs, ys, "curve "+pathClass(r, run.Path))
		ends = append(ends, labelMark{plotRight + 6, ys[len(ys)-1] + 4, "start", "end " + pathClass(r, run.Path),
			run.Path})
	}
	ch.Labels = append(ch.Labels, spread(ends, 15)...)
	return ch
}

// evenTicks returns about four round values from 0 to most.
func evenTicks(most float64) []float64 {
	step := math.Pow(10, math.Floor(math.Log10(most)))
	for most/step < 3 {
		step /= 2
	}
	for most/step > 7 {
		step *= 2
	}
	var all []float64
	for v := 0.0; v <= most; v += step {
		all = append(all, v)
	}
	return all
}
