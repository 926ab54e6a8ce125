package report

import (
	"fairlead/internal/lab/result"
)

// stepColumn is one figure of the steps, for one client.
type stepColumn struct {
	title  string
	metric result.Metric
	scale  scale
	// fine is the scale of what a step adds, which is small compared with the
	// whole.
	fine scale
	at   func(result.Step) result.Added
}

// stepColumns lists a client's figures in the order of the table.
func stepColumns(r *result.Report, client result.Client) []stepColumn {
	var all []stepColumn
	if len(r.Steps) == 0 {
		return nil
	}
	for _, w := range workloadsOf(r, client) {
		for i, f := range r.Steps[0].Figures {
			if f.Client == client && f.Workload == w {
				all = append(all, makeStepColumn(r, i))
			}
		}
	}
	return all
}

// makeStepColumn returns the i-th figure of every step.
func makeStepColumn(r *result.Report, i int) stepColumn {
	c := stepColumn{at: func(s result.Step) result.Added { return s.Figures[i] }}
	var values []float64
	for _, s := range r.Steps {
		values = append(values, c.at(s).Value)
	}
	f := c.at(r.Steps[0])
	c.title, c.metric = workloadTitle(f.Workload), f.Metric
	c.scale = scaleFor(f.Metric, values)
	c.fine = c.scale
	c.fine.decimals = min(3, c.fine.decimals+1)
	return c
}

// cells formats a step's figure, what it adds and the interval of that; of several
// sessions, also the interval with the session component.
func (c stepColumn) cells(s result.Step) (value, added, interval string) {
	f := c.at(s)
	if f.Rounds == 0 {
		return none, "", ""
	}
	value = c.scale.format(f.Value)
	if s.Over == "" {
		return value, "", ""
	}
	added = c.signed(f.Added)
	if !f.Distinguishable {
		added = "≈ " + added
	}
	interval = span(c.signed(f.Low), c.signed(f.High))
	if f.Sessions > 1 {
		interval += "; " + span(c.signed(f.SessionLow), c.signed(f.SessionHigh))
	}
	return value, added, interval
}

// signed formats a difference with its sign, including a plus.
func (c stepColumn) signed(x float64) string {
	if x < 0 {
		return "−" + c.fine.format(-x)
	}
	return "+" + c.fine.format(x)
}

// class returns the colour class of a step: adding is worse, less than nothing is
// better.
func (c stepColumn) class(s result.Step) string {
	switch f := c.at(s); {
	case s.Over == "" || f.Rounds == 0:
		return verdictClass(unknown)
	case !f.Distinguishable:
		return verdictClass(same)
	case f.Added < 0:
		return verdictClass(better)
	}
	return verdictClass(worse)
}

// over returns what a step is compared with, if that is not the step before it.
func over(r *result.Report, i int) string {
	s := r.Steps[i]
	if i == 0 || s.Over == "" || s.Over == r.Steps[i-1].Path {
		return ""
	}
	return " over " + s.Over
}

// steps writes what each hop adds, per client.
func (t table) steps() {
	for _, client := range clientsOf(t.r) {
		columns := stepColumns(t.r, client)
		if len(columns) == 0 {
			continue
		}
		titles, units, sides := []string{"what each hop adds"}, []string{clientTitle(client)}, "l"
		for _, c := range columns {
			titles = append(titles, "", c.title, "")
			units = append(units, c.scale.label, "added", "95 %")
			sides += "rrr"
		}
		rows := [][]string{titles, units}
		for i, s := range t.r.Steps {
			row := []string{s.Name + over(t.r, i)}
			for _, c := range columns {
				value, added, interval := c.cells(s)
				row = append(row, value, added, interval)
			}
			rows = append(rows, row)
		}
		t.line()
		t.aligned(rows, sides)
		t.line("≈ not distinguishable from no difference")
	}
}

// stepSheets returns what each hop adds as tables of the page.
func stepSheets(r *result.Report, client result.Client) []sheet {
	columns := stepColumns(r, client)
	if len(columns) == 0 {
		return nil
	}
	t := sheet{Title: "step"}
	for _, c := range columns {
		t.Heads = append(t.Heads, sheetHead{c.title, c.scale.label, "added, 95 %"})
	}
	for i, s := range r.Steps {
		row := sheetRow{Path: s.Name + over(r, i)}
		for _, c := range columns {
			value, added, interval := c.cells(s)
			row.Cells = append(row.Cells, sheetCell{Value: value, Ratio: added, Margin: interval, Class: c.class(s)})
		}
		t.Rows = append(t.Rows, row)
	}
	return []sheet{t}
}

// cascades draws every step as a bar that begins where the step before ends.
func cascades(r *result.Report, client result.Client) []chart {
	var all []chart
	for _, c := range stepColumns(r, client) {
		all = append(all, cascade(r, c))
	}
	return all
}

func cascade(r *result.Report, c stepColumn) chart {
	bottom := forestTop + rowHeight*float64(len(r.Steps))
	ch := chart{Title: c.title + ", " + metricTitle(c.metric), Unit: c.scale.label, Caption: "what each hop adds",
		W: forestWidth, H: bottom + 24}
	most := 0.0
	for _, s := range r.Steps {
		most = max(most, c.at(s).Value, c.at(s).Value-c.at(s).Added)
	}
	x := ch.fromZero(most, c.scale.divisor, bottom)
	ch.Text = ch.Title + ", step by step."
	for i, s := range r.Steps {
		c.bar(&ch, s, x, forestTop+rowHeight*float64(i))
	}
	return ch
}

// bar draws one step: the first from zero, the others only with what they add.
func (c stepColumn) bar(ch *chart, s result.Step, x func(float64) float64, y float64) {
	f := c.at(s)
	value, added, interval := c.cells(s)
	from, text := 0.0, value
	if s.Over != "" {
		from, text = f.Value-f.Added, added
	}
	ch.label(forestLeft-12, y+rowHeight/2+4, "end", "name", s.Name)
	ch.rect(x(min(from, f.Value)), y+5, x(max(from, f.Value))-x(min(from, f.Value)), rowHeight-10, "step "+c.class(s),
		s.Name+": "+text+" "+interval)
	ch.label(forestWidth, y+rowHeight/2+4, "end", "figure "+c.class(s), text)
	ch.Text += " " + s.Name + ": " + value + ", " + added + " (" + interval + ")."
}
