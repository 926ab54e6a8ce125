package page

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/frontend/dashboard/table"
	"fairlead/internal/wording"
)

func cluster() Page {
	return Page{Path: "cluster", Title: "Cluster", needs: hasDaemon, command: fixed("fairlead cluster status"),
		Question: "Which node holds each virtual address, what is left of its lease, which node is behind, and what " +
			"is frozen.",
		view: func(v *Visit) []Section {
			c, ok := get(v, v.Sources.Cluster, "cluster")
			if !ok {
				return nil
			}
			if !c.Member {
				return []Section{{Lines: []string{"This host belongs to no cluster: create one with `fairlead cluster init`, or " +
					"join one with `fairlead cluster join`."}}}
			}
			first := Section{ID: "problems", Items: v.wrongCluster(c), Lines: []string{fmt.Sprintf(
				"Cluster %s, node %s. The certificate of this node ends %s, unless it is renewed.", c.Status.Name,
				c.Status.Node,
				c.Status.CertificateExpires.UTC().Format("2006-01-02 15:04 MST"))}}
			for _, s := range c.Status.Etcd.Servers {
				for _, w := range s.Warnings {
					first.Items = append(first.Items, Item{State: table.Warn, Mark: "warning",
						What: "etcd " + s.Endpoint, Text: w})
				}
			}
			parts := []Section{first,
				{ID: "addresses", Title: "Virtual addresses", Table: v.tabled(addressTable(v, c.Status)),
					Command: "fairlead cluster address move ADDRESS NODE"},
				{ID: "nodes", Title: "Nodes", Table: v.tabled(nodesTable(c.Status))},
				{ID: "has", Title: "What each node has", Table: v.tabled(hasTable(v, c.Status))},
				objectSection(v, c.Status),
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
		Columns: table.Columns("address=Address|holder=Holder|for=For|lease=Lease left|renewed=Last renewal seen|" +
			"hold=Hold|" +
			"candidates=Candidates|state=State|barred=Not taken by this node because")}
	if v.Actions {
		t.Columns = append(t.Columns, table.Column{Key: "do", Title: "Do"})
	}
	t.Row = func(i int) table.Row {
		a, w := s.Addresses[i], rows[i]
		row := table.Row{ID: table.ID("address", w[0]), Cells: table.Texts(w[0], w[1], "-", w[3], "-", w[4], w[5], w[6],
			wording.OrDash(a.Barred))}
		row.Cells[7].State = addressState(a)
		if a.Holder != "" {
			row.Cells[2].Time, row.Cells[4].Text = a.Since, fmt.Sprintf("%.1fs ago", a.Renewed.Seconds())
		}
		if v.Actions && a.Announce == "" {
			at := a.Address.Addr().String()
			row.Cells = append(row.Cells, table.Cell{Forms: []table.Form{v.form("Move", "Move "+at+" to another node",
				"do",
				"move", "address", at)}})
		} else if v.Actions {
			row.Cells = append(row.Cells, table.Cell{Text: "-"})
		}
		return row
	}
	return t
}

func nodesTable(s api.ClusterStatus) table.Table {
	return table.Table{ID: "n", Caption: "Nodes", N: len(s.Nodes),
		Columns: table.Columns("node=Node|addresses=Addresses|version=Version|state=State|since=Daemon runs for|" +
			"behind#=Behind|why=Frozen because"), Row: func(i int) table.Row {
			n := s.Nodes[i]
			addresses := make([]string, len(n.Addresses))
			for j, a := range n.Addresses {
				addresses[j] = a.String()
			}
			cells := table.Texts(n.Name, wording.OrDash(strings.Join(addresses, " ")), wording.OrDash(n.Version),
				wording.NodeState(n), "-", "-", wording.OrDash(n.Frozen))
			if n.Alive {
				cells[4].Time = n.Since
			}
			if n.Answered {
				cells[5].Text, cells[5].Number = fmt.Sprint(n.Behind), float64(n.Behind)
			}
			if n.Behind > 0 {
				cells[5].State = table.Warn
			}
			cells[3].State = nodeState(n)
			return table.Row{ID: table.ID("node", n.ID), Cells: cells}
		}}
}

// objectSection lists what the other nodes have, by their records.
func objectSection(v *Visit, s api.ClusterStatus) Section {
	part := Section{ID: "objects", Title: "What other nodes have", Note: "Each node writes its real servers, its " +
		"endpoints in networks of the cluster and its servers of the gateway into etcd. Only its own dashboard has its " +
		"other ports and containers."}
	objects, ok := get(v, v.Sources.Objects, "records of nodes")
	if !ok || !objects.Known {
		part.Lines = []string{"Unknown: the records have not been read yet."}
		return part
	}
	if !s.Etcd.Connected && !s.Etcd.Since.IsZero() {
		part.Items = []Item{{State: table.Warn, Mark: "old", What: "records", Text: "etcd does not answer",
			Since: s.Etcd.Since}}
	}
	part.Table = v.tabled(objectTable(s, objects.All))
	return part
}

func objectTable(s api.ClusterStatus, all []api.ClusterObject) table.Table {
	alive := map[string]bool{}
	for _, n := range s.Nodes {
		alive[n.Name] = n.Alive
	}
	others := slices.DeleteFunc(slices.Clone(all), func(o api.ClusterObject) bool { return o.Node == s.Node })
	return table.Table{ID: "o", Caption: "Objects of other nodes", N: len(others),
		Empty:   "No other node has a record of any.",
		Columns: table.Columns("node=Node|kind=Kind|of=Service or network|name=Name|address=Address:port|state=State"),
		Row: func(i int) table.Row {
			o := others[i]
			addresses := make([]string, len(o.Addresses))
			for j, a := range o.Addresses {
				if addresses[j] = a.String(); o.Port != 0 {
					addresses[j] = netip.AddrPortFrom(a, o.Port).String()
				}
			}
			cells := table.Texts(o.Node, string(o.Kind), wording.OrDash(o.Of), o.Name,
				wording.OrDash(strings.Join(addresses, " ")), "recorded")
			switch state := &cells[5]; {
			case o.Unreadable != "":
				state.Text, state.State = "unknown: "+o.Unreadable, table.Bad
			case !alive[o.Node]:
				state.Text, state.State = "its node does not answer", table.Bad
			case o.Down != "":
				state.Text, state.State = "down: "+o.Down, table.Bad
			case o.Draining:
				state.Text, state.State = "draining", table.Warn
			}
			return table.Row{ID: table.ID("object", o.Node, string(o.Kind), o.Of, o.Name), Cells: cells}
		}}
}

// hasTable lists what this node knows of the others without asking them: the virtual addresses that they hold, and what
// their checks have reported.
func hasTable(v *Visit, s api.ClusterStatus) table.Table {
	holds, up, down := map[string][]string{}, map[string]int{}, map[string]int{}
	for _, a := range s.Addresses {
		holds[a.Holder] = append(holds[a.Holder], a.Address.Addr().String())
	}
	services, _ := get(v, v.Sources.Services, "services")
	for _, r := range reals(services) {
		for _, n := range r.view.Nodes {
			switch n.State {
			case api.RealUp:
				up[n.Node]++
			case api.RealDown:
				down[n.Node]++
			}
		}
	}
	return table.Table{ID: "h", Caption: "What each node has", Small: true, N: len(s.Nodes),
		Columns: table.Columns("node=Node|holds=Holds virtual addresses|found=Its checks of this node's services"), Row: func(i int) table.Row {
			name := s.Nodes[i].Name
			found := "unknown, because it has not reported any"
			if up[name]+down[name] > 0 {
				found = fmt.Sprintf("%d up, %d down", up[name], down[name])
			}
			if name == s.Node {
				found = "see Services"
			}
			cells := table.Texts(name, wording.OrDash(strings.Join(holds[name], " ")), found)
			if down[name] > 0 {
				cells[2].State = table.Warn
			}
			return table.Row{ID: table.ID("has", s.Nodes[i].ID), Cells: cells}
		}}
}

// nodeState says how good the state of a node is.
func nodeState(n api.ClusterNodeStatus) table.State {
	switch {
	case !n.Alive, n.Frozen != "":
		return table.Bad
	case n.Drained:
		return table.Warn
	}
	return table.OK
}

func etcdTable(e api.EtcdHealth) table.Table {
	return table.Table{ID: "etcd", Caption: "Servers of etcd", Small: true, N: len(e.Servers),
		Empty:   "No server is known.",
		Columns: table.Columns("endpoint=Server|version=Version|role=Role|size=Size|state=State"),
		Row: func(i int) table.Row {
			w := wording.EtcdRow(e, e.Servers[i])
			cells := table.Texts(w...)
			if cells[4].State = table.OK; w[4] != "ok" {
				cells[4].State = table.Bad
			}
			return table.Row{ID: table.ID("etcd", w[0]), Cells: cells}
		}}
}

func sessionTable(all []api.ClusterBGPSession) table.Table {
	rows := wording.SessionRows(all)[1:]
	return table.Table{ID: "b", Caption: "BGP sessions", Small: true, N: len(rows),
		Columns: table.Columns("router=Router|as=AS|local=Local AS|nodes=Nodes|state=State|for=For|bfd=BFD"),
		Row: func(i int) table.Row {
			w := rows[i]
			cells := table.Texts(w...)
			cells[5].Time = all[i].Since
			return table.Row{ID: table.ID("bgp", w[0]), Cells: cells}
		}}
}
