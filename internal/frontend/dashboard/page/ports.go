package page

import (
	"fairlead/internal/explain/ports"
	"fairlead/internal/frontend/dashboard/table"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/wording"
)

func portsPage() Page {
	return Page{Path: "ports", Title: "Ports", needs: hasHost, command: fixed("fairlead ports"),
		Question: "Who owns each port of this host, by which way packets reach it, and who can reach it.",
		view: func(v *Visit) []Section {
			host, ok := get(v, v.Sources.Host, "host")
			part := Section{ID: "ports", Table: v.tabled(portTable(host.Ports))}
			if !ok {
				part = Section{}
			}
			for _, f := range host.Failed {
				part.Items = append(part.Items, Item{State: table.Bad, Mark: "not published", What: "port", Text: f})
			}
			for _, u := range host.Unseen {
				part.Items = append(part.Items, Item{State: table.Warn, Mark: "not examined", What: "host", Text: u})
			}
			return []Section{part}
		}}
}

func portTable(all []ports.Port) table.Table {
	return table.Table{Caption: "Ports", N: len(all), Empty: "No port is in use.",
		Columns: table.Columns("port=Port|address=Address|process=Process|container=Container|network=Network|" +
			"mode=Mode|" +
			"to=To|from=Reached from|firewall=Firewall"),
		Row: func(i int) table.Row {
			p := all[i]
			words := wording.PortRow(p)
			row := table.Row{ID: table.ID(words...), Cells: table.Texts(words...)}
			row.Cells[0].Number = float64(p.Ports.First)
			if p.Ended {
				row.Cells[3].State = table.Bad
			}
			if p.Reach.Firewall == ports.Bypassed && p.Reach.LAN != rules.No {
				row.Cells[8].State = table.Warn
			}
			return row
		}}
}
