package page

import (
	"fmt"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/frontend/dashboard/table"
	"fairlead/internal/wording"
)

func cluster() Page {
	return Page{Path: "cluster", Title: "Cluster", needs: hasDaemon, command: fixed("fairlead cluster status"),
		Question: "Which node holds each virtual address, what is left of its lease, which node is behind, and what is frozen.",
		view: func(v *Visit) []Section {
			c, ok := get(v, v.Sources.Cluster, "cluster")
			if !ok {
				return nil
			}
			if !c.Member {
				return []Section{{Lines: []string{"This host belongs to no cluster: create one with `fairlead cluster init`, or " +
					"join one with `fairlead cluster join`."}}}
			}
			first := Section{ID: "problems", Items: wrongCluster(v, c), Lines: []string{fmt.Sprintf(
				"Cluster %s, node %s. The certificate of this node ends %s, unless it is renewed.", c.Status.Name, c.Status.Node,
				c.Status.CertificateExpires.UTC().Format("2006-01-02 15:04 MST"))}}
			for _, s := range c.Status.Etcd.Servers {
				for _, w := range s.Warnings {
					first.Items = append(first.Items, Item{State: table.Warn, Mark: "warning", What: "etcd " + s.Endpoint, Text: w})
				}
			}
			parts := []Section{first,
				{ID: "addresses", Title: "Virtual addresses", Table: v.tabled(addressTable(v, c.Status)),
					Command: "fairlead cluster address move ADDRESS NODE"},
				{ID: "nodes", Title: "Nodes", Table: v.tabled(nodesTable(c.Status))},
				{ID: "etcd", Title: "etcd", Table: v.tabled(etcdTable(c.Status.Etcd))}}
			if len(c.Sessions) > 0 {
				parts = append(parts, Section{ID: "bgp", Title: "Routers", Table: v.tabled(sessionTable(c.Sessions))})
			}
			return parts
		}}
}

// addressState says how good the state of a virtual address is.
func addressState(a api.ClusterAddress) table.State {
	switch {
	case a.Conflict != nil, a.Holder == "" && a.Announce == "":
		return table.Bad
	case a.Removed, a.Target != "", a.Lease == 0 && a.Announce == "":
		return table.Warn
	}
	return table.OK
}

func addressTable(v *Visit, s api.ClusterStatus) table.Table {
	rows := wording.AddressRows(s.Addresses)[1:]
	t := table.Table{Caption: "Virtual addresses", N: len(rows), Empty: "The cluster has no virtual address.",
		Columns: []table.Column{{Key: "address", Title: "Address"}, {Key: "holder", Title: "Holder"},
			{Key: "for", Title: "For"}, {Key: "lease", Title: "Lease left"}, {Key: "renewed", Title: "Last renewal seen"},
			{Key: "hold", Title: "Hold"}, {Key: "candidates", Title: "Candidates"}, {Key: "state", Title: "State"},
			{Key: "barred", Title: "Not taken by this node because"}}}
	if v.Actions {
		t.Columns = append(t.Columns, table.Column{Key: "do", Title: "Do"})
	}
	t.Row = func(i int) table.Row {
		a, w := s.Addresses[i], rows[i]
		held := ageCell(a.Since)
		if a.Holder == "" {
			held = table.Cell{Text: "-"}
		}
		row := table.Row{ID: table.ID("address", w[0]), Cells: []table.Cell{{Text: w[0]}, {Text: w[1]}, held, {Text: w[3]},
			{Text: fmt.Sprintf("%.1fs ago", a.Renewed.Seconds())}, {Text: w[4]}, {Text: w[5]},
			{Text: w[6], State: addressState(a)}, {Text: wording.OrDash(a.Barred)}}}
		if v.Actions && a.Announce == "" {
			at := a.Address.Addr().String()
			row.Cells = append(row.Cells, table.Cell{Forms: []table.Form{v.form("Move", "Move "+at+" to another node", "do",
				"move", "address", at)}})
		} else if v.Actions {
			row.Cells = append(row.Cells, table.Cell{Text: "-"})
		}
		return row
	}
	return t
}

func nodesTable(s api.ClusterStatus) table.Table {
	return table.Table{ID: "n", Caption: "Nodes", N: len(s.Nodes), Columns: []table.Column{{Key: "node", Title: "Node"},
		{Key: "addresses", Title: "Addresses"}, {Key: "version", Title: "Version"}, {Key: "state", Title: "State"},
		{Key: "since", Title: "Daemon runs for"}, {Key: "behind", Title: "Behind", Numeric: true},
		{Key: "why", Title: "Frozen because"}}, Row: func(i int) table.Row {
		n := s.Nodes[i]
		addresses := make([]string, len(n.Addresses))
		for j, a := range n.Addresses {
			addresses[j] = a.String()
		}
		runs, behind := table.Cell{Text: "-"}, table.Cell{Text: "-", Number: -1}
		if n.Alive {
			runs = ageCell(n.Since)
		}
		if n.Answered {
			behind = table.Cell{Text: fmt.Sprint(n.Behind), Number: float64(n.Behind)}
		}
		if n.Behind > 0 {
			behind.State = table.Warn
		}
		state := table.OK
		switch {
		case !n.Alive, n.Frozen != "":
			state = table.Bad
		case n.Drained:
			state = table.Warn
		}
		return table.Row{ID: table.ID("node", n.ID), Cells: []table.Cell{{Text: n.Name},
			{Text: wording.OrDash(strings.Join(addresses, " "))}, {Text: wording.OrDash(n.Version)},
			{Text: wording.NodeState(n), State: state}, runs, behind, {Text: wording.OrDash(n.Frozen)}}}
	}}
}

func etcdTable(e api.EtcdHealth) table.Table {
	return table.Table{ID: "etcd", Caption: "Servers of etcd", Small: true, N: len(e.Servers), Empty: "No server is known.",
		Columns: []table.Column{{Key: "endpoint", Title: "Server"}, {Key: "version", Title: "Version"},
			{Key: "role", Title: "Role"}, {Key: "size", Title: "Size"}, {Key: "state", Title: "State"}},
		Row: func(i int) table.Row {
			w := wording.EtcdRow(e, e.Servers[i])
			state := table.OK
			if w[4] != "ok" {
				state = table.Bad
			}
			return table.Row{ID: table.ID("etcd", w[0]), Cells: []table.Cell{{Text: w[0]}, {Text: w[1]}, {Text: w[2]},
				{Text: w[3]}, {Text: w[4], State: state}}}
		}}
}

func sessionTable(all []api.ClusterBGPSession) table.Table {
	rows := wording.SessionRows(all)[1:]
	return table.Table{ID: "b", Caption: "BGP sessions", Small: true, N: len(rows), Columns: []table.Column{
		{Key: "router", Title: "Router"}, {Key: "as", Title: "AS"}, {Key: "local", Title: "Local AS"},
		{Key: "nodes", Title: "Nodes"}, {Key: "state", Title: "State"}, {Key: "for", Title: "For"}, {Key: "bfd", Title: "BFD"}},
		Row: func(i int) table.Row {
			w := rows[i]
			return table.Row{ID: table.ID("bgp", w[0]), Cells: []table.Cell{{Text: w[0]}, {Text: w[1]}, {Text: w[2]},
				{Text: w[3]}, {Text: w[4]}, ageCell(all[i].Since), {Text: w[6]}}}
		}}
}
