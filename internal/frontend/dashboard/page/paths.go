package page

import (
	"fmt"
	"strings"

	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/dashboard/table"
	"fairlead/internal/lab/report"
	"fairlead/internal/lab/result"
	"fairlead/internal/paths"
	"fairlead/internal/plan"
	"fairlead/internal/promise"
	"fairlead/internal/wording"
)

func pathsPage() Page {
	return Page{Path: "paths", Title: "Paths", needs: hasHost, command: fixed("fairlead paths"),
		Question: "What each path to a container promises, why, what it needs, and what it costs as measured here; " +
			"which networks there are.",
		view: func(v *Visit) []Section {
			var facts plan.Facts
			probed := false
			if hasHost(v.Site) {
				facts, probed = get(v, v.Sources.Kernel, "features of the kernel")
			}
			all, courses := paths.Table(facts), []report.Course(nil)
			if l, ok := get(v, v.Sources.Lab, "history of the laboratory"); ok {
				courses = l.Courses
			}
			alone, published := divided(all)
			return append(networkSection(v), []Section{
				{ID: "published", Title: "Drivers with publish modes",
					Table: v.tabled(pathTable("p", "Paths to published ports", published, probed, promise.Publish(),
						courses))},
				{ID: "alone", Title: "Drivers", Table: v.tabled(pathTable("d", "Paths by drivers alone", alone, probed,
					promise.Driver(), courses))}}...)
		}}
}

// networkSection returns the networks of the daemon, with what was chosen for outbound auto and why.
func networkSection(v *Visit) []Section {
	if !hasDaemon(v.Site) {
		return nil
	}
	all, ok := get(v, v.Sources.Networks, "networks")
	if !ok {
		return nil
	}
	at := table.Sorted(len(all.Networks), func(a, b int) int {
		return order[networkState(all, a)] - order[networkState(all, b)]
	})
	return []Section{{ID: "networks", Title: "Networks", Command: "fairlead network ls",
		Table: v.tabled(table.Table{ID: "n", Caption: "Networks", N: len(at),
			Empty: "There is no network: create one with `fairlead network create`.",
			Columns: table.Columns("name=Name|driver=Driver|subnets=Subnets|address=Address|parent=Parent|" +
				"state=State"),
			Row: func(i int) table.Row {
				n := all.Networks[at[i]]
				row := table.Row{ID: table.ID("network", n.Name),
					Cells: table.Texts(wording.NetworkRow(n, all.State(n.Name, "available"))...)}
				row.Cells[5].State = networkState(all, at[i])
				return row
			}})}}
}

// networkState says how good the state of a network is.
func networkState(all admin.Networks, i int) table.State {
	if all.Failed(all.Networks[i].Name) {
		return table.Bad
	}
	return table.OK
}

// divided divides the paths into drivers alone and those with a publish mode.
func divided(all []paths.Path) (alone, published []paths.Path) {
	for _, p := range all {
		if p.Via == "" {
			alone = append(alone, p)
		} else {
			published = append(published, p)
		}
	}
	return alone, published
}

// pathTable lists paths. probed says that it is known which of them this kernel supports.
func pathTable(id, caption string, all []paths.Path, probed bool, questions []promise.Question,
	courses []report.Course) table.Table {
	t := table.Table{ID: id, Caption: caption, N: len(all),
		Columns: table.Columns("path=Path|here=On this host|cost=Cost, measured here")}
	for i, q := range questions {
		t.Columns = append(t.Columns, table.Column{Key: fmt.Sprint("promise", i), Title: string(q)})
	}
	t.Columns = append(t.Columns, table.Column{Key: "linux", Title: "Needs Linux"},
		table.Column{Key: "features", Title: "Needs"})
	t.Row = func(i int) table.Row {
		p := all[i]
		here, state := "can be built", table.OK
		if !probed {
			here, state = "not known", ""
		} else if p.Unavailable != "" {
			here, state = "cannot be built: "+p.Unavailable, table.Bad
		}
		words := []string{wording.PathName(p), here, costOf(p, courses)}
		for _, q := range questions {
			a := p.Promises[q]
			words = append(words, strings.TrimSuffix(wording.YesNo(a)+": "+a.How, ": "))
		}
		cells := table.Texts(append(words, wording.OrDash(p.Kernel), wording.OrDash(featuresText(p.Needs)))...)
		cells[1].State = state
		return table.Row{ID: table.ID("path", words[0]), Cells: cells}
	}
	return t
}

func featuresText(all []plan.Feature) string {
	words := make([]string, len(all))
	for i, f := range all {
		words[i] = string(f)
	}
	return strings.Join(words, ", ")
}

// costOf returns the newest ratios of a path for clients on other hosts in the laboratory's history.
func costOf(p paths.Path, courses []report.Course) string {
	name := string(p.Driver)
	if p.Via != "" {
		name = string(p.Via)
	}
	var all []string
	for _, c := range courses {
		if c.Path == name && c.Client == result.Remote && len(c.Points) > 0 {
			all = append(all, fmt.Sprintf("%s %s ×%.2f", c.Workload, c.Metric, c.Points[len(c.Points)-1].Ratio))
		}
	}
	return wording.OrDash(strings.Join(all, ", "))
}
