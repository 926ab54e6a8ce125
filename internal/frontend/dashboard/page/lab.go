package page

import (
	"fmt"
	"slices"

	"fairlead/internal/frontend/dashboard/source"
	"fairlead/internal/frontend/dashboard/table"
	"fairlead/internal/lab/history"
	"fairlead/internal/lab/report"
	"fairlead/internal/lab/result"
)

func lab() Page {
	return Page{Path: "lab", Title: "Laboratory", needs: always, command: fixed("fairlead lab history"),
		Question: "How each ratio changed over the recorded sessions: is it worse, and since when. And the last report.",
		view: func(v *Visit) []Section {
			l, ok := get(v, v.Sources.Lab, "history of the laboratory")
			if !ok {
				return nil
			}
			parts := []Section{{ID: "history", Title: "Ratios to the baseline over sessions",
				Table: v.tabled(courseTable(l)), Note: "Expected is where 99 % of new entries are expected from the earlier ones."}}
			for _, d := range l.Damaged {
				parts[0].Items = append(parts[0].Items, Item{State: table.Warn, Mark: "damaged", What: "history", Text: d})
			}
			if l.Last != nil {
				r := &l.Last.Report
				parts = append(parts, Section{ID: "last", Title: "The last report: " + r.Suite,
					Note: fmt.Sprintf("%s Started %s with kernel %s and fairlead %s. Intervals are of 95 %%; the floor is that "+
						"of two measurements of the same path.", r.Question, r.Started, r.Host.Kernel, r.Host.Fairlead),
					Table: v.tabled(summaryTable(r))})
			}
			return parts
		}}
}

func courseTable(l source.Lab) table.Table {
	t := table.Table{Caption: "Ratios", N: len(l.Courses), Empty: "The history has no session: record one with " +
		"`fairlead lab run --history`.", Columns: []table.Column{{Key: "suite", Title: "Suite"},
		{Key: "client", Title: "Client"}, {Key: "figure", Title: "Figure"}, {Key: "path", Title: "Path"},
		{Key: "baseline", Title: "Baseline"}, {Key: "median", Title: "Median", Numeric: true},
		{Key: "last", Title: "Last", Numeric: true}, {Key: "expected", Title: "Expected"},
		{Key: "history", Title: "History"}, {Key: "verdict", Title: "Verdict"}}}
	t.Row = func(i int) table.Row {
		c := l.Courses[i]
		at := slices.IndexFunc(l.Groups, func(g history.Group) bool { return g.Setup == c.Setup })
		words := report.HistoryRow(l.Groups[at], c)
		state := map[history.Verdict]table.State{history.Worse: table.Bad, history.Better: table.OK}[c.Verdict]
		return table.Row{ID: table.ID(fmt.Sprint(c.Setup), c.Path, string(c.Client), c.Workload, string(c.Metric)),
			Cells: []table.Cell{{Text: c.Setup.Suite}, {Text: string(c.Client)}, {Text: words[0]}, {Text: words[1]},
				{Text: words[2]}, {Text: words[3], Number: c.Median},
				{Text: words[4], Number: c.Points[len(c.Points)-1].Ratio}, {Text: words[5]}, {Text: words[6]},
				{Text: words[7], State: state}}}
	}
	return t
}

func summaryTable(r *result.Report) table.Table {
	t := table.Table{ID: "l", Caption: "Results", N: len(r.Summary), Columns: []table.Column{{Key: "path", Title: "Path"},
		{Key: "client", Title: "Client"}, {Key: "workload", Title: "Workload"}, {Key: "metric", Title: "Metric"},
		{Key: "value", Title: "Median (interval)", Numeric: true}, {Key: "unit", Title: "Unit"},
		{Key: "ratio", Title: "Ratio (interval)", Numeric: true}, {Key: "floor", Title: "Floor", Numeric: true},
		{Key: "rounds", Title: "Rounds", Numeric: true}, {Key: "differs", Title: "Differs from the baseline"}}}
	t.Row = func(i int) table.Row {
		s := r.Summary[i]
		ratio, differs := table.Cell{Text: "-"}, table.Cell{Text: "-"}
		if s.Baseline != "" && s.Ratio > 0 {
			ratio = table.Cell{Text: fmt.Sprintf("%.3f (%.3f to %.3f)", s.Ratio, s.RatioLow, s.RatioHigh), Number: s.Ratio}
			differs.Text = "not distinguishable"
			if s.Distinguishable {
				differs.Text = "yes"
			}
		}
		if s.Lacks != "" {
			differs.Text = s.Lacks
		}
		return table.Row{ID: table.ID(s.Path, string(s.Client), s.Workload, string(s.Metric)), Cells: []table.Cell{
			{Text: s.Path}, {Text: string(s.Client)}, {Text: s.Workload}, {Text: string(s.Metric)},
			{Text: fmt.Sprintf("%.4g (%.4g to %.4g)", s.Value, s.Low, s.High), Number: s.Value}, {Text: s.Unit}, ratio,
			{Text: fmt.Sprintf("±%.1f %%", s.Noise*100), Number: s.Noise}, {Text: fmt.Sprint(s.Rounds),
				Number: float64(s.Rounds)}, differs}}
	}
	return t
}
