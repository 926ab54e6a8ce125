// Package chart draws the figures of the last hour: each chart is an SVG picture, with the same figures as a table for
// those who do not see it. It reads no counter: package history has the figures.
//
// The pictures have attributes and classes only, because the dashboard's content security policy forbids styles in
// pages. The style sheet gives each line another colour and another pattern of dashes.
package chart

import (
	"fmt"
	"html/template"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/frontend/dashboard/history"
	"fairlead/internal/frontend/dashboard/page"
	"fairlead/internal/frontend/dashboard/table"
)

// line is one line of a chart.
type line struct {
	// key is that of the series, label what the legend calls it. The label of the only line is empty.
	key, label string
}

// kind describes a chart.
type kind struct {
	id, title, unit, note string
	lines                 []line
	// format writes a value of the series.
	format func(float64) string
	// most is the upper end of the scale; if it is 0, the greatest value decides.
	most float64
	// pages are those that show the chart.
	pages []string
}

// kinds are all charts, in their order on a page.
var kinds = []kind{
	{id: "requests", title: "Requests", unit: "per second",
		note:  "Requests of all entry points that have been answered.",
		lines: []line{{history.Requests, ""}}, format: number, pages: []string{"now", "services", "routers"}},
	{id: "errors", title: "Failed requests", unit: "per second",
		note:  "Answers with a status from 400 on.",
		lines: []line{{history.ServerErrors, "5xx"}, {history.ClientErrors, "4xx"}}, format: number,
		pages: []string{"now", "services", "routers"}},
	{id: "latency", title: "Time to answer a request", unit: "mean",
		note:  "From the request until the end of the response.",
		lines: []line{{history.RequestSeconds, ""}}, format: duration, pages: []string{"now", "services", "routers"}},
	{id: "bodies", title: "Bodies of requests and responses", unit: "per second",
		lines: []line{{history.RequestBytes, "from clients"}, {history.ResponseBytes, "to clients"}}, format: bytes,
		pages: []string{"routers"}},
	{id: "traffic", title: "Traffic of endpoints", unit: "per second",
		note:  "Frames at the links of all endpoints: in is towards the workloads.",
		lines: []line{{history.BytesIn, "in"}, {history.BytesOut, "out"}}, format: bytes, pages: []string{"now",
			"flows"}},
	{id: "flows", title: "New flows to published ports", unit: "per second",
		lines: []line{{history.Flows, ""}}, format: number, pages: []string{"now", "flows"}},
	{id: "drops", title: "Dropped packets", unit: "per second",
		note:  "Packets that links of endpoints or published ports have dropped.",
		lines: []line{{history.Drops, ""}}, format: number, pages: []string{"now", "flows"}},
	{id: "cpu", title: "CPU time of the path", unit: "of one CPU",
		note:   "The kernel's network code is that of the whole host.",
		lines:  []line{{history.CPUKernel, "kernel"}, {history.CPUProxy, "proxy"}, {history.CPUGateway, "gateway"}},
		format: percent,
		pages:  []string{"now", "flows", "routers"}},
	{id: "conntrack", title: "Connection tracking table", unit: "full", most: 1,
		note:  "If the table is full, the kernel drops packets of new flows.",
		lines: []line{{history.Conntrack, ""}}, format: percent, pages: []string{"now", "flows"}},
}

// Of returns the charts of a page. Charts and lines without a figure are left out.
func Of(name string, h api.History) (all []page.Chart) {
	for _, k := range kinds {
		if !slices.Contains(k.pages, name) {
			continue
		}
		k.lines = slices.DeleteFunc(slices.Clone(k.lines), func(l line) bool { return h.Series[l.key] == nil })
		if len(k.lines) > 0 {
			d := drawing{kind: k, ages: h.Ages, series: h.Series}
			all = append(all, page.Chart{ID: k.id, Title: k.title, Unit: k.unit, Note: k.note,
				SVG: template.HTML(d.svg()), Table: d.table()}) // svg escapes all texts
		}
	}
	return all
}

// step is how many minutes a row of a table stands for.
const step = 5

// table returns the figures as a table, the newest first.
func (d *drawing) table() table.View {
	t := table.Table{ID: "chart-" + d.id, Caption: d.title, Small: true, N: span / 60 / step, Row: d.row,
		Columns: []table.Column{{Key: "time", Title: "Time"}}}
	for _, l := range d.lines {
		name := l.label
		if name == "" {
			name = d.title
		}
		t.Columns = append(t.Columns, table.Column{Title: name + ", mean"}, table.Column{Title: name + ", highest"})
	}
	return t.Arrange("", nil)
}

// row returns what is known of the i-th part of the hour before now.
func (d *drawing) row(i int) table.Row {
	to, from := i*step, (i+1)*step
	r := table.Row{ID: fmt.Sprintf("chart-%s-%d", d.id, i), Cells: []table.Cell{
		{Text: fmt.Sprintf("%d to %d minutes ago", from, to)}}}
	for _, l := range d.lines {
		s := d.summary(l.key, float64(60*from), float64(60*to))
		r.Cells = append(r.Cells, table.Cell{Text: s.text(s.mean, d.format)}, table.Cell{Text: s.text(s.highest,
			d.format)})
	}
	return r
}
