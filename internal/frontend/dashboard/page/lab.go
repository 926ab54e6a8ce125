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
	return Page{Path: "lab", Title: "Laboratory", needs: hasHost, command: fixed("fairlead lab history"),
		Question: "How each ratio changed over the recorded sessions: is it worse, and since when. And the last report.",
		view: func(v *Visit) []Section {
			l, ok := get(v, v.Sources.Lab, "history of the laboratory")
			if !ok {
				return nil
			}
			parts := []Section{{ID: "history", Title: "Ratios to the baseline over sessions",
				Table: v.tabled(courseTable(l)),
				Note:  "Expected is where 99 % of new entries are expected from the earlier ones."}}
			for _, d := range l.Damaged {
				parts[0].Items = append(parts[0].Items, Item{State: table.Warn, Mark: "damaged", What: "history",
					Text: d})
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
		"`fairlead lab run --history`.",
		Columns: table.Columns("suite=Suite|client=Client|figure=Figure|path=Path|baseline=Baseline|median#=Median|" +
			"last#=Last|expected=Expected|history=History|verdict=Verdict")}
	t.Row = func(i int) table.Row {
		c := l.Courses[i]
		at := slices.IndexFunc(l.Groups, func(g history.Group) bool { return g.Setup == c.Setup })
		words := report.HistoryRow(l.Groups[at], c)
		state := map[history.Verdict]table.State{history.Worse: table.Bad, history.Better: table.OK}[c.Verdict]
		cells := table.Texts(append([]string{c.Setup.Suite, string(c.Client)}, words...)...)
		cells[5].Number, cells[6].Number, cells[9].State = c.Median, c.Points[len(c.Points)-1].Ratio, state
		return table.Row{ID: table.ID(fmt.Sprint(c.Setup), c.Path, string(c.Client), c.Workload, string(c.Metric)),
			Cells: cells}
	}
	return t
}

func summaryTable(r *result.Report) table.Table {
	t := table.Table{ID: "l", Caption: "Results", N: len(r.Summary),
		Columns: table.Columns("path=Path|client=Client|workload=Workload|metric=Metric|value#=Median (interval)|" +
			"unit=Unit|" +
			"ratio#=Ratio (interval)|floor#=Floor|rounds#=Rounds|differs=Differs from the baseline")}
	t.Row = func(i int) table.Row {
		s := r.Summary[i]
		ratio, differs := "-", "-"
		if s.Baseline != "" && s.Ratio > 0 {
			ratio = fmt.Sprintf("%.3f (%.3f to %.3f)", s.Ratio, s.RatioLow, s.RatioHigh)
			differs = "not distinguishable"
			if s.Distinguishable {
				differs = "yes"
			}
		}
		if s.Lacks != "" {
			differs = s.Lacks
		}
		cells := table.Texts(s.Path, string(s.Client), s.Workload, string(s.Metric),
			fmt.Sprintf("%.4g (%.4g to %.4g)", s.Value, s.Low, s.High), s.Unit, ratio,
			fmt.Sprintf("±%.1f %%", s.Noise*100), fmt.Sprint(s.Rounds), differs)
		cells[4].Number, cells[6].Number, cells[7].Number, cells[8].Number = s.Value, s.Ratio, s.Noise,
			float64(s.Rounds)
		return table.Row{ID: table.ID(s.Path, string(s.Client), s.Workload, string(s.Metric)), Cells: cells}
	}
	return t
}
