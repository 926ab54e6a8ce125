package report

import (
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"

	"fairlead/internal/escape"
	"fairlead/internal/lab/result"
)

//go:embed template
var templates embed.FS

// HTML writes the report as one page that needs no other file: no network, no
// script that runs, charts as inline SVG, and the report itself embedded as JSON.
func HTML(w io.Writer, r *result.Report) error {
	raw, err := marshal(r, "")
	if err != nil {
		return err
	}
	page, err := template.New("").Funcs(functions(r)).ParseFS(templates, "template/*")
	if err != nil {
		return fmt.Errorf("read page template: %w", err)
	}
	// The page contains the report as JSON, and names that users chose.
	if err := page.ExecuteTemplate(escape.JSON(w), "page.html", pageOf(r, raw)); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

// functions are the functions that the templates call.
func functions(r *result.Report) template.FuncMap {
	return template.FuncMap{
		"px": func(x float64) string { return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64) },
		"cross": func(d dotMark) string {
			return fmt.Sprintf("M%.1f %.1fl%g %gm0 %gl%g %g", d.X-d.R, d.Y-d.R, 2*d.R, 2*d.R, -2*d.R, -2*d.R, 2*d.R)
		},
		"detailHeads": func() []string { return detailHeads(r) },
		// A dash pattern distinguishes the paths for readers who cannot
		// distinguish the colours.
		"dashes": func() []template.CSS {
			return []template.CSS{"none", "none", "7 3", "2 3", "9 3 2 3", "12 4", "4 2", "1 4"}
		},
	}
}

// page is the data of the template.
type page struct {
	*result.Report
	Headline, Floor string
	Verdict         conclusion
	Answer          []string
	Disturbances    []string
	Lacking         []string
	Sections        []section
	Keys            []key // of the ledgers
	Comparisons     []comparison
	Discarded       []discard
	Facts           []fact
	Baseline        string
	Raw             template.JS
}

// section is everything about one client.
type section struct {
	ID, Title  string
	Tables     []sheet
	Steps      []sheet
	Cascades   []chart
	Forests    []chart
	Tails      []chart
	Visits     []chart
	VisitGrids []grid
	Ledgers    []chart
	Rounds     []chart
	Details    []sheet
}

// fact is one line about the host.
type fact struct{ Name, Value string }

func pageOf(r *result.Report, raw []byte) page {
	p := page{
		Report: r, Headline: headline(r), Verdict: conclude(r), Floor: floors(r),
		Lacking: lacking(r), Answer: answer(r), Disturbances: disturbances(r), Keys: ledgerKeys(),
		Comparisons: comparisons(r), Discarded: discards(r), Facts: facts(r), Baseline: baselineOf(r),
		// The marshaller escapes < > &, so no string in the report can end the
		// script element.
		Raw: template.JS(raw),
	}
	for _, c := range clientsOf(r) {
		head := headColumns(r, c)
		s := section{
			ID: string(c), Title: clientTitle(c), Tables: sheetsOf(r, c, head),
			Steps: stepSheets(r, c), Cascades: cascades(r, c),
			Forests: forests(r, c, head), Tails: quantilePlots(r, c),
			Visits: visitCharts(r, c), VisitGrids: visitGrids(r, c),
			Ledgers: ledgers(r, c), Rounds: timelines(r, head), Details: details(r, c),
		}
		s.name()
		p.Sections = append(p.Sections, s)
	}
	return p
}

// name gives every chart an id for references to its title.
func (s *section) name() {
	for kind, charts := range map[string][]chart{"step": s.Cascades, "ratio": s.Forests, "latency": s.Tails,
		"visits": s.Visits,
		"cpu":    s.Ledgers, "rounds": s.Rounds} {
		for i := range charts {
			charts[i].ID = fmt.Sprintf("%s-%s-%d", s.ID, kind, i)
		}
	}
}

// facts lists the machine and its relevant settings; nil if they are unknown.
func facts(r *result.Report) []fact {
	if imported(r) {
		return nil
	}
	h := r.Host
	all := append(machineFacts(r), []fact{
		{"kernel", h.Kernel},
		{"CPUs", fmt.Sprintf("%d × %s", h.CPUs, cmp.Or(h.CPUModel, "unknown model"))},
		{"memory", fmt.Sprintf("%.1f GiB", float64(h.Memory)/(1<<30))},
		{"address family", r.Family.String()},
		{"network conditions (netem)", r.Netem.String()},
		{"fairlead", h.Fairlead},
	}...)
	for _, k := range slices.Sorted(maps.Keys(h.Tools)) {
		all = append(all, fact{k, h.Tools[k]})
	}
	for _, k := range slices.Sorted(maps.Keys(h.Settings)) {
		all = append(all, fact{k, h.Settings[k]})
	}
	for _, k := range slices.Sorted(maps.Keys(h.Features)) {
		all = append(all, fact{"feature " + k, map[bool]string{true: "yes", false: "no"}[h.Features[k]]})
	}
	return all
}
