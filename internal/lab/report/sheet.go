package report

import (
	"fmt"
	"slices"

	"fairlead/internal/lab/result"
)

// sheet is a table of the page.
type sheet struct {
	Title string
	Heads []sheetHead
	Rows  []sheetRow
}

type sheetHead struct{ Title, Unit, Over string }

type sheetRow struct {
	Path  string
	Cells []sheetCell
}

// sheetCell is a figure, its ratio and the number of discarded rounds.
type sheetCell struct {
	Value, Ratio, Margin, Class string
	Lost                        int
}

// widest is the greatest number of figures side by side on paper.
const widest = 5

// sheetsOf returns the terminal's table for the page, in parts that fit on a sheet
// of paper.
func sheetsOf(r *result.Report, client result.Client, columns []column) []sheet {
	var all []sheet
	for part := range slices.Chunk(columns, widest) {
		all = append(all, sheetOf(r, client, part))
	}
	return all
}

func sheetOf(r *result.Report, client result.Client, columns []column) sheet {
	var t sheet
	base := baselineOf(r)
	for _, c := range columns {
		over := "× " + base
		if result.Absolute(c.metric) {
			over = "worst"
		}
		t.Heads = append(t.Heads, sheetHead{c.title, c.scale.label, over})
	}
	for _, p := range pathsOf(r, client) {
		row := sheetRow{Path: p}
		for _, c := range columns {
			s := c.at(r, p)
			plain := makeCell(s, c.scale)
			cell := sheetCell{Value: plain.value, Ratio: plain.ratio, Margin: plain.margin,
				Class: verdictClass(judge(s))}
			if s != nil {
				cell.Lost = s.Invalid
			}
			if plain.verdict == same {
				cell.Ratio = "≈ " + cell.Ratio
			}
			row.Cells = append(row.Cells, cell)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// details returns the whole summary of a client, one table per workload and tool.
// A row is one path and metric with both intervals.
func details(r *result.Report, client result.Client) []sheet {
	var all []sheet
	at := map[string]int{}
	for _, c := range allColumns(r, client) {
		title := workloadTitle(c.workload) + byTool(c.tool)
		if _, ok := at[title]; !ok {
			at[title] = len(all)
			all = append(all, sheet{Title: title})
		}
		t := &all[at[title]]
		for _, p := range pathsOf(r, client) {
			if s := c.at(r, p); s != nil {
				t.Rows = append(t.Rows, detailRow(r, c, s))
			}
		}
	}
	return all
}

// detailHeads are the headings of the columns that detailRow fills, after the
// column of the path.
func detailHeads(r *result.Report) []string {
	heads := []string{"figure", "median", "unit", "95 %", "ratio", "95 %", "p", "floor", "rounds", "discarded"}
	if r.Sessions > 1 {
		heads = append(heads, "sessions", "95 % with sessions")
	}
	return heads
}

// detailRow returns figure, its interval, ratio, its interval, p, floor and
// rounds; for several sessions, also the interval with the session component.
func detailRow(r *result.Report, c column, s *result.Summary) sheetRow {
	row := sheetRow{Path: s.Path}
	cells := []string{metricTitle(c.metric), none, c.scale.label, "", "", "", "", "", fmt.Sprint(s.Rounds),
		fmt.Sprint(s.Invalid)}
	if s.Rounds > 0 {
		cells[1] = c.scale.format(s.Value)
		cells[3] = span(c.scale.format(s.Low), c.scale.format(s.High))
	}
	if s.Rounds > 0 && s.Baseline != "" {
		cells[4] = formatRatio(s.Ratio)
		cells[5] = ratioSpan(s.RatioLow, s.RatioHigh)
		cells[6] = fmt.Sprintf("%.2g", s.P)
		cells[7] = formatNoise(s.Noise)
	}
	if r.Sessions > 1 {
		cells = append(cells, fmt.Sprint(s.Sessions), sessionSpan(s))
	}
	for i, text := range cells {
		class := ""
		if i == 4 {
			class = verdictClass(judge(s))
		}
		row.Cells = append(row.Cells, sheetCell{Value: text, Class: class})
	}
	return row
}

// sessionSpan writes the interval with the session component, "" if there is none.
func sessionSpan(s *result.Summary) string {
	if s.Sessions < 2 {
		return ""
	}
	return ratioSpan(s.SessionLow, s.SessionHigh)
}

// ratioSpan writes the interval of a ratio, or that there is none.
func ratioSpan(low, high float64) string {
	if low <= 0 || high > result.WidestInterval*low {
		return none
	}
	return span(fmt.Sprintf("%.3f", low), fmt.Sprintf("%.3f", high))
}

// span writes an interval.
func span(low, high string) string { return low + " – " + high }
