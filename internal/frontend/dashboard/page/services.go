package page

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/escape"
	"fairlead/internal/frontend/dashboard/table"
	"fairlead/internal/model"
	"fairlead/internal/syntax"
	"fairlead/internal/wording"
)

func services() Page {
	return Page{Path: "services", Title: "Services", needs: hasDaemon, command: fixed("fairlead service ls"),
		Question: "Which real servers get new connections, which do not, since when, and why.",
		view: func(v *Visit) []Section {
			all, total, ok := shownServices(v)
			if !ok {
				return nil
			}
			list, heads := realTable(v, reals(all)), serviceTable(v, all)
			list.N, heads.N = total.Reals, total.Services
			heads.ID, heads.Caption = servicesID, "Virtual services"
			return []Section{{ID: "reals", Table: v.tabled(list)}, {ID: "services", Title: "Virtual services",
				Table: v.tabled(heads)}}
		}}
}

// servicesID is the id of the table of services.
const servicesID = "s"

// shownServices returns the services and real servers that the page shows, and how many there are. It reads all only for
// a filter, another order or a later page: that costs 200 ms of CPU for 10,000 real servers.
func shownServices(v *Visit) (shown []api.ServiceView, total api.ServiceTotal, ok bool) {
	if !table.Chosen("", v.Query) && !table.Chosen(servicesID, v.Query) {
		first, ok := get(v, v.Sources.FirstServices, "services")
		return first.Services, first.Total, ok
	}
	all, ok := get(v, v.Sources.Services, "services")
	return all, api.ServiceTotal{Services: len(all), Reals: len(reals(all))}, ok
}

// real is a real server with its service.
type real struct {
	service *api.ServiceView
	view    *api.RealView
}

// reals returns the real servers of services in the order of the page: first those that are not up.
func reals(all []api.ServiceView) []real {
	var list []real
	for i := range all {
		for j := range all[i].Servers {
			list = append(list, real{&all[i], &all[i].Servers[j]})
		}
	}
	slices.SortStableFunc(list, func(a, b real) int {
		return int(a.view.State.Urgency() - b.view.State.Urgency())
	})
	return list
}

// order puts what is wrong first.
var order = map[table.State]int{table.Bad: 0, table.Warn: 1, table.Dim: 2, table.OK: 3}

// stateOf has the states of urgencies.
var stateOf = map[api.Urgency]table.State{api.UrgentFailed: table.Bad, api.UrgentChanging: table.Warn,
	api.UrgentUnknown: table.Dim, api.UrgentNot: table.OK}

// realState says how good the state of a real server is.
func realState(s api.RealStatus) table.State { return stateOf[s.Urgency()] }

// serviceState says how good the state of a service is.
func serviceState(v api.ServiceView) table.State { return stateOf[v.Urgency()] }

func realTable(v *Visit, list []real) table.Table {
	t := table.Table{Caption: "Real servers", N: len(list), Empty: "There is no virtual service: create one with " +
		"`fairlead service add`.",
		Columns: table.Columns("real=Real server|service=Service|state=State|since=For|cause=Cause|" +
			"checked=Last check, ago|" +
			"found=Found|took#=Took|weight#=Weight|active#=Active|drain=Drain ends in")}
	if v.Actions {
		t.Columns = append(t.Columns, table.Column{Key: "do", Title: "Do"})
	}
	t.Row = func(i int) table.Row { return realRow(v, list[i]) }
	return t
}

// realRow returns the row of a real server in the words of `fairlead service ls`.
func realRow(v *Visit, r real) table.Row {
	words := wording.RealRow(*r.service, *r.view)
	took := "-"
	if !r.view.Checked.IsZero() {
		took = r.view.Latency.Round(10 * time.Microsecond).String()
	}
	flows := float64(0)
	if r.view.Flows != nil {
		flows = float64(*r.view.Flows)
	}
	row := table.Row{ID: table.ID("real", r.service.Name, wording.RealText(*r.view), r.view.Selected),
		Cells: table.Texts(strings.TrimPrefix(words[0], "  -> "), r.service.Name, words[4], "-", words[6], "-",
			wording.OrDash(r.view.Found), took, words[2], words[3], "-")}
	row.Cells[1].Link, row.Cells[2].State = v.link("service", "name", r.service.Name), realState(r.view.State)
	row.Cells[3].Time, row.Cells[5].Time = r.view.Since, r.view.Checked
	row.Cells[7].Number, row.Cells[8].Number, row.Cells[9].Number = float64(r.view.Latency), float64(r.view.Weight),
		flows
	if r.view.State == api.RealDraining && !r.view.Deadline.IsZero() {
		row.Cells[10].Until, row.Cells[10].Number = r.view.Deadline, r.view.Deadline.Sub(v.now).Seconds()
	}
	if v.Actions {
		row.Cells = append(row.Cells, table.Cell{Forms: []table.Form{realForm(v, r)}})
	}
	return row
}

// realForm returns the button that drains a real server, or enables it again.
func realForm(v *Visit, r real) table.Form {
	name := model.RealServer{Address: r.view.Address, Port: r.view.Port}.String()
	do, button := api.DrainReal, "Drain"
	if r.view.State != api.RealUp {
		do, button = api.EnableReal, "Enable"
	}
	return v.form(button, button+" "+name+" of "+r.service.Name, "do", string(do), "service", r.service.Name, "real",
		name)
}

func serviceTable(v *Visit, all []api.ServiceView) table.Table {
	at := table.Sorted(len(all), func(a, b int) int {
		return int(all[a].Urgency() - all[b].Urgency())
	})
	return table.Table{N: len(all), Empty: "There is no virtual service.",
		Columns: table.Columns("name=Name|protocol=Protocol|address=Address:port|scheduler=Scheduler|plane=Plane|" +
			"state=State"),
		Row: func(i int) table.Row {
			one := all[at[i]]
			cells := table.Texts(wording.ServiceRow(one)...)
			cells[0].Link, cells[5].State = v.link("service", "name", one.Name), serviceState(one)
			return table.Row{ID: table.ID("service", one.Name), Cells: cells}
		}}
}

func service() Page {
	return Page{Path: "service", Title: "Service", needs: hasDaemon, hidden: true,
		Question: "All settings of a virtual service, its real servers, their last checks, and what happened to it.",
		command:  func(q url.Values) string { return "fairlead service show " + escape.Shell(q.Get("name")) },
		view: func(v *Visit) []Section {
			name := v.Query.Get("name")
			all, ok := get(v, v.Sources.Services, "services")
			i := slices.IndexFunc(all, func(s api.ServiceView) bool { return s.Name == name })
			if i < 0 {
				if !ok {
					return nil
				}
				return []Section{{Lines: []string{"There is no service " + name + "."}}}
			}
			one := all[i : i+1]
			head := serviceTable(v, one)
			head.ID, head.Caption, head.Small = servicesID, "The service", true
			parts := []Section{{ID: "head", Table: v.tabled(head)},
				{ID: "reals", Title: "Real servers", Table: v.tabled(realTable(v, reals(one))),
					Command: realCommand(one[0])}}
			if nodes := nodeTable(one[0]); nodes.N > 0 {
				parts = append(parts, Section{ID: "nodes", Title: "What other nodes find", Table: v.tabled(nodes)})
			}
			parts = append(parts, Section{ID: "settings", Title: "Settings", Table: v.tabled(settingTable(one[0]))})
			return append(parts, eventSection(v, "service "+name)...)
		}}
}

// realCommand returns the commands that the buttons stand for.
func realCommand(v api.ServiceView) string {
	name := "REAL"
	if len(v.Servers) > 0 {
		name = wording.RealText(v.Servers[0])
	}
	return "fairlead service drain " + escape.Shell(v.Name) + " " + name
}

func nodeTable(v api.ServiceView) table.Table {
	var rows []table.Row
	for _, s := range v.Servers {
		for _, n := range s.Nodes {
			found := wording.OrDash(string(n.State))
			if n.Problem != "" {
				found = "unknown: " + n.Problem
			}
			cells := table.Texts(wording.RealText(s), n.Node, found)
			cells[2].State = realState(n.State)
			rows = append(rows, table.Row{ID: table.ID("node", wording.RealText(s), n.Node), Cells: cells})
		}
	}
	return table.Table{ID: "n", Caption: "Findings of nodes", Small: true, N: len(rows),
		Columns: table.Columns("real=Real server|node=Node|found=Found there"),
		Row:     func(i int) table.Row { return rows[i] }}
}

func settingTable(v api.ServiceView) table.Table {
	var rows []table.Row
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, table.Row{ID: table.ID("setting", name, value), Cells: table.Texts(name, value)})
		}
	}
	for _, f := range syntax.ServiceFields() {
		add(f.Name, f.Get(v.VirtualService))
	}
	for _, f := range syntax.CheckFields() {
		add("check "+f.Name, f.Get(v.VirtualService))
	}
	add("check command", strings.Join(v.Check.Command, " "))
	if v.Origin != model.FromCommand {
		add("declared by", string(v.Origin))
	}
	return table.Table{ID: "set", Caption: "Settings", Small: true, N: len(rows),
		Columns: table.Columns("setting=Setting|value=Value"),
		Row:     func(i int) table.Row { return rows[i] }}
}
