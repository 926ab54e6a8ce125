package report

import (
	"fmt"
	"strings"

	"fairlead/internal/lab/result"
)

// grid is a table of the page without ratios.
type grid struct {
	Title string
	Heads []string
	Rows  [][]string
}

// visitGrids returns, per workload with visits, what visitors and nodes had in the
// last valid round of each path.
func visitGrids(r *result.Report, client result.Client) []grid {
	var all []grid
	for _, workload := range visitWorkloads(r, client) {
		title := workloadTitle(workload)
		visits := grid{Title: title, Heads: []string{"path", "visits", "failed", "first byte p50/p95/p99/max, ms",
			"visit p50/p95/p99/max, ms", "probe p50/p95/p99/max, ms", "most in progress", "drain, s",
			"lateness p99, ms"}}
		nodes := grid{Title: title + ": nodes", Heads: []string{"path", "node", "requests", "CPU, s", "throttled, s",
			"sent, MB", "proof"}}
		for _, path := range pathsOf(r, client) {
			run := lastWithCourse(r, client, path, workload)
			if run == nil {
				continue
			}
			s := run.Site
			visits.Rows = append(visits.Rows, []string{path, fmt.Sprint(s.Visits), fmt.Sprint(s.Failed),
				milliseconds(s.FirstByte), milliseconds(s.Visit), milliseconds(s.Probe), fmt.Sprint(s.Concurrent),
				fmt.Sprintf("%.1f", s.Drain), fmt.Sprintf("%.1f", 1e3*s.LatenessP99)})
			nodes.Rows = append(nodes.Rows, nodeRows(run)...)
		}
		all = append(all, visits, nodes)
		if events := eventRows(r, client, workload); len(events) > 0 {
			heads := []string{"path", "after, s", "what"}
			all = append(all, grid{Title: title + ": events", Heads: heads, Rows: events})
		}
	}
	return append(all, kneeGrids(r, client)...)
}

// milliseconds writes the four percentiles.
func milliseconds(t result.Times) string {
	var parts []string
	for _, v := range []float64{t.P50, t.P95, t.P99, t.Max} {
		parts = append(parts, fmt.Sprintf("%.*f", decimalsFor(1e3*v, 2), 1e3*v))
	}
	return strings.Join(parts, " / ")
}

func nodeRows(run *result.Run) [][]string {
	all := run.Site.Nodes
	if run.Site.Director != nil {
		all = append(all[:len(all):len(all)], *run.Site.Director)
	}
	var rows [][]string
	for i, n := range all {
		name, proof := n.Name, ""
		if n.Gateway {
			name += " (gateway)"
		}
		if p := run.Proof; i == 0 && p != nil {
			proof = fmt.Sprintf("%s: %d of %d", p.Counter, p.Got, p.Want)
			if p.Absent != "" {
				proof += fmt.Sprintf("; %s: %d", p.Absent, p.AbsentGot)
			}
		}
		rows = append(rows, []string{run.Path, name, fmt.Sprint(n.Requests), fmt.Sprintf("%.2f", n.CPU),
			fmt.Sprintf("%.2f", n.Throttled), fmt.Sprintf("%.1f", float64(n.Sent)/1e6), proof})
	}
	return rows
}

func eventRows(r *result.Report, client result.Client, workload string) [][]string {
	var rows [][]string
	for _, path := range pathsOf(r, client) {
		if run := lastWithCourse(r, client, path, workload); run != nil {
			for _, e := range run.Site.Events {
				rows = append(rows, []string{path, fmt.Sprintf("%.2f", e.At), e.What})
			}
		}
	}
	return rows
}

// kneeGrids returns the rates that the last search of the knee tried.
func kneeGrids(r *result.Report, client result.Client) []grid {
	g := grid{Title: "knee",
		Heads: []string{"path", "visits per second", "growth of visits in progress, 1/s", "result"}}
	for _, path := range pathsOf(r, client) {
		run := lastWithCourse(r, client, path, result.Knee)
		if run == nil {
			continue
		}
		for _, s := range run.Site.Steps {
			verdict := "carried"
			if s.Over {
				verdict = "too much"
			}
			g.Rows = append(g.Rows, []string{path, fmt.Sprintf("%.1f", s.Rate), fmt.Sprintf("%.2f", s.Slope),
				verdict})
		}
	}
	if len(g.Rows) == 0 {
		return nil
	}
	return []grid{g}
}
