package page

import (
	"cmp"
	"fmt"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/frontend/dashboard/table"
	"fairlead/internal/kernel/counter"
	"fairlead/internal/wording"
)

func flows() Page {
	return Page{Path: "flows", Title: "Flows", needs: hasDaemon, command: fixed("fairlead stats"),
		Question: "What carries most traffic, what is dropped, and how full the kernel's tables are.",
		view: func(v *Visit) []Section {
			s, ok := get(v, v.Sources.Stats, "counters")
			if !ok {
				return nil
			}
			fill := Section{ID: "fill", Title: "Tables of the kernel", Table: v.tabled(fillTable(s))}
			for _, p := range s.Problems {
				fill.Items = append(fill.Items, Item{State: table.Warn, Mark: "not read", What: "counters", Text: p})
			}
			return []Section{fill, {ID: "publishes", Title: "Published ports", Table: v.tabled(publishTable(s))},
				{ID: "reals", Title: "Real servers", Table: v.tabled(realStatsTable(s))},
				{ID: "endpoints", Title: "Endpoints", Table: v.tabled(endpointTable(s))}}
		}}
}

// fillText writes how full a table is.
func fillText(f *counter.Fill) string {
	if f == nil || f.Max == 0 {
		return "-"
	}
	return fmt.Sprintf("%d of %d (%d%%)", f.Entries, f.Max, f.Entries*100/f.Max)
}

func fillTable(s api.Stats) table.Table {
	all := []struct {
		name string
		fill *counter.Fill
	}{{"conntrack", s.Conntrack}, {"eBPF flows", s.EBPF}}
	return table.Table{ID: "f", Caption: "Entries", Small: true, N: len(all), Columns: []table.Column{
		{Key: "table", Title: "Table"}, {Key: "entries", Title: "Entries", Numeric: true}},
		Row: func(i int) table.Row {
			c := table.Cell{Text: fillText(all[i].fill)}
			if len(wrongFill(all[i].name, all[i].fill)) > 0 {
				c.State = table.Bad
			}
			return table.Row{ID: table.ID("fill", all[i].name), Cells: []table.Cell{{Text: all[i].name}, c}}
		}}
}

// counted returns a cell with bytes and packets, or a dash.
func counted(bytes, packets *uint64) table.Cell {
	if bytes == nil {
		return table.Cell{Text: "-", Number: -1}
	}
	if packets == nil {
		return table.Cell{Text: wording.BytesText(*bytes), Number: float64(*bytes)}
	}
	return table.Cell{Text: wording.Traffic(*bytes, *packets), Number: float64(*bytes)}
}

// number returns a cell with a count, or a dash.
func number(n *uint64) table.Cell {
	if n == nil {
		return table.Cell{Text: "-", Number: -1}
	}
	return table.Cell{Text: wording.Number(n), Number: float64(*n)}
}

// dropped returns a cell with a number of dropped packets, which is a warning unless it is 0.
func dropped(n *uint64) table.Cell {
	c := number(n)
	if n != nil && *n > 0 {
		c.State = table.Warn
	}
	return c
}

// parts returns both directions of a counter; nil if it is not counted.
func parts(c *counter.InOut) (in, out *uint64) {
	if c == nil {
		return nil, nil
	}
	return &c.In, &c.Out
}

// most orders indices so that the greatest sums come first.
func most(n int, sum func(i int) float64) []int {
	at := make([]int, n)
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(a, b int) int { return cmp.Compare(sum(b), sum(a)) })
	return at
}

// total returns the sum of both directions.
func total(c *counter.InOut) float64 {
	if c == nil {
		return -1
	}
	return float64(c.In) + float64(c.Out)
}

// trafficColumns are those of every table with traffic.
func trafficColumns(first ...table.Column) []table.Column {
	return append(first, table.Column{Key: "in", Title: "In (packets)", Numeric: true},
		table.Column{Key: "out", Title: "Out (packets)", Numeric: true})
}

func publishTable(s api.Stats) table.Table {
	at := most(len(s.Publishes), func(i int) float64 { return total(s.Publishes[i].Bytes) })
	return table.Table{ID: "p", Caption: "Published ports, most bytes first", N: len(at), Empty: "No port is published.",
		Columns: append(trafficColumns(table.Column{Key: "publish", Title: "Publish"}, table.Column{Key: "to", Title: "To"},
			table.Column{Key: "via", Title: "Via"}), table.Column{Key: "flows", Title: "Flows", Numeric: true},
			table.Column{Key: "live", Title: "Live", Numeric: true},
			table.Column{Key: "dropped", Title: "Dropped in", Numeric: true},
			table.Column{Key: "why", Title: "Not counted"}),
		Row: func(i int) table.Row {
			p := s.Publishes[at[i]]
			in, out := parts(p.Bytes)
			packetsIn, packetsOut := parts(p.Packets)
			drops, _ := parts(p.Drops)
			return table.Row{ID: table.ID("publish", p.Publish.String()), Cells: []table.Cell{{Text: wording.PublishText(p)},
				{Text: fmt.Sprintf("%s:%s", p.Endpoint, p.Ports)}, {Text: string(p.Via)}, counted(in, packetsIn),
				counted(out, packetsOut), number(p.Flows), number(p.Live), dropped(drops),
				{Text: wording.OrDash(p.NotCounted), State: table.Dim}}}
		}}
}

func realStatsTable(s api.Stats) table.Table {
	type one struct {
		service *api.ServiceStats
		real    *api.RealStats
	}
	var all []one
	for i := range s.Services {
		for j := range s.Services[i].Reals {
			all = append(all, one{&s.Services[i], &s.Services[i].Reals[j]})
		}
	}
	slices.SortStableFunc(all, func(a, b one) int { return cmp.Compare(sum(b.real.Bytes), sum(a.real.Bytes)) })
	return table.Table{ID: "r", Caption: "Real servers, most bytes first", N: len(all),
		Empty: "There is no virtual service.", Columns: append(trafficColumns(table.Column{Key: "real", Title: "Real server"},
			table.Column{Key: "service", Title: "Service"}, table.Column{Key: "state", Title: "State"}),
			table.Column{Key: "flows", Title: "Flows", Numeric: true}, table.Column{Key: "live", Title: "Live", Numeric: true},
			table.Column{Key: "transitions", Title: "State changes", Numeric: true},
			table.Column{Key: "why", Title: "Not counted"}),
		Row: func(i int) table.Row {
			r := all[i].real
			bytes, packets := orNone(r.Bytes), orNone(r.Packets)
			return table.Row{ID: table.ID("stats", all[i].service.Service, r.Real.String()), Cells: []table.Cell{
				{Text: wording.StatsReal(*r)}, {Text: all[i].service.Service},
				{Text: string(r.State), State: realState(r.State)}, counted(bytes.In, packets.In),
				counted(bytes.Out, packets.Out), number(r.Flows), number(r.Live), number(&r.Transitions),
				{Text: wording.OrDash(r.NotCounted), State: table.Dim}}}
		}}
}

// orNone returns counts; those that are not counted if there are none.
func orNone(c *api.Counted) api.Counted {
	if c == nil {
		return api.Counted{}
	}
	return *c
}

// sum returns the sum of the directions that are counted.
func sum(c *api.Counted) (n uint64) {
	for _, part := range []*uint64{orNone(c).In, orNone(c).Out} {
		if part != nil {
			n += *part
		}
	}
	return n
}

func endpointTable(s api.Stats) table.Table {
	bytes := func(e api.EndpointStats) float64 {
		if e.Traffic == nil {
			return -1
		}
		return total(&e.Traffic.Bytes)
	}
	at := most(len(s.Endpoints), func(i int) float64 { return bytes(s.Endpoints[i]) })
	return table.Table{Caption: "Endpoints, most bytes first", N: len(at), Empty: "Nothing is attached.",
		Columns: append(trafficColumns(table.Column{Key: "endpoint", Title: "Endpoint"},
			table.Column{Key: "network", Title: "Network"}, table.Column{Key: "driver", Title: "Driver"}),
			table.Column{Key: "droppedin", Title: "Dropped in", Numeric: true},
			table.Column{Key: "droppedout", Title: "Dropped out", Numeric: true},
			table.Column{Key: "why", Title: "Not counted"}),
		Row: func(i int) table.Row {
			e := s.Endpoints[at[i]]
			row := table.Row{ID: table.ID("endpoint", e.Endpoint, e.Network), Cells: []table.Cell{{Text: e.Endpoint},
				{Text: e.Network}, {Text: string(e.Driver)}}}
			if t := e.Traffic; t != nil {
				row.Cells = append(row.Cells, counted(&t.Bytes.In, &t.Packets.In), counted(&t.Bytes.Out, &t.Packets.Out),
					dropped(&t.Drops.In), dropped(&t.Drops.Out))
			} else {
				none := table.Cell{Text: "-", Number: -1}
				row.Cells = append(row.Cells, none, none, none, none)
			}
			return table.Row{ID: row.ID, Cells: append(row.Cells, table.Cell{Text: wording.OrDash(e.NotCounted),
				State: table.Dim})}
		}}
}
