package page

import (
	"cmp"
	"fmt"

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
			sorted := func(name string, of func(api.Stats) table.Table) *table.View {
				t, _ := derive(v, v.Sources.Stats, "counters", name, of)
				return v.tabled(t)
			}
			return []Section{fill,
				{ID: "publishes", Title: "Published ports", Table: sorted("publishes", publishTable)},
				{ID: "reals", Title: "Real servers", Table: sorted("reals", realStatsTable)},
				{ID: "endpoints", Title: "Endpoints", Table: sorted("endpoints", endpointTable)}}
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
	return table.Table{ID: "f", Caption: "Entries", Small: true, N: len(all),
		Columns: table.Columns("table=Table|entries#=Entries"),
		Row: func(i int) table.Row {
			cells := table.Texts(all[i].name, fillText(all[i].fill))
			if len(wrongFill(all[i].name, all[i].fill)) > 0 {
				cells[1].State = table.Bad
			}
			return table.Row{ID: table.ID("fill", all[i].name), Cells: cells}
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
	return table.Sorted(n, func(a, b int) int { return cmp.Compare(sum(b), sum(a)) })
}

// total returns the sum of both directions.
func total(in, out *uint64) float64 {
	if in == nil && out == nil {
		return -1
	}
	sum := 0.0
	for _, part := range []*uint64{in, out} {
		if part != nil {
			sum += float64(*part)
		}
	}
	return sum
}

// trafficColumns are in every table with traffic.
const trafficColumns = "|in#=In (packets)|out#=Out (packets)"

// traffic returns the cells of a row with traffic: texts, bytes and packets in each direction, further cells, and why
// something is not counted.
func traffic(first []string, in, packetsIn, out, packetsOut *uint64, notCounted string,
	more ...table.Cell) []table.Cell {
	cells := append(table.Texts(first...), counted(in, packetsIn), counted(out, packetsOut))
	return append(append(cells, more...), table.Cell{Text: wording.OrDash(notCounted), State: table.Dim})
}

func publishTable(s api.Stats) table.Table {
	at := most(len(s.Publishes), func(i int) float64 { return total(parts(s.Publishes[i].Bytes)) })
	return table.Table{ID: "p", Caption: "Published ports, most bytes first", N: len(at),
		Empty: "No port is published.",
		Columns: table.Columns("publish=Publish|to=To|via=Via" + trafficColumns +
			"|flows#=Flows|live#=Live|dropped#=Dropped in|why=Not counted"),
		Row: func(i int) table.Row {
			p := s.Publishes[at[i]]
			in, out := parts(p.Bytes)
			packetsIn, packetsOut := parts(p.Packets)
			drops, _ := parts(p.Drops)
			first := []string{wording.PublishText(p), fmt.Sprintf("%s:%s", p.Endpoint, p.Ports), string(p.Via)}
			return table.Row{ID: table.ID("publish", p.Publish.String()), Cells: traffic(first, in, packetsIn, out,
				packetsOut, p.NotCounted, number(p.Flows), number(p.Live), dropped(drops))}
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
	at := most(len(all), func(i int) float64 {
		bytes := orNone(all[i].real.Bytes)
		return total(bytes.In, bytes.Out)
	})
	return table.Table{ID: "r", Caption: "Real servers, most bytes first", N: len(all),
		Empty: "There is no virtual service.", Columns: table.Columns("real=Real server|service=Service|state=State" +
			trafficColumns + "|flows#=Flows|live#=Live|transitions#=State changes|why=Not counted"),
		Row: func(i int) table.Row {
			r, service := all[at[i]].real, all[at[i]].service.Service
			bytes, packets := orNone(r.Bytes), orNone(r.Packets)
			cells := traffic([]string{wording.StatsReal(*r), service, string(r.State)}, bytes.In, packets.In, bytes.Out,
				packets.Out, r.NotCounted, number(r.Flows), number(r.Live), number(&r.Transitions))
			cells[2].State = realState(r.State)
			return table.Row{ID: table.ID("stats", service, r.Real.String()), Cells: cells}
		}}
}

// orNone returns counts; those that are not counted if there are none.
func orNone(c *api.Counted) api.Counted {
	if c == nil {
		return api.Counted{}
	}
	return *c
}

func endpointTable(s api.Stats) table.Table {
	none := &counter.Traffic{}
	at := most(len(s.Endpoints), func(i int) float64 {
		if t := s.Endpoints[i].Traffic; t != nil {
			return total(parts(&t.Bytes))
		}
		return -1
	})
	return table.Table{Caption: "Endpoints, most bytes first", N: len(at), Empty: "Nothing is attached.",
		Columns: table.Columns("endpoint=Endpoint|network=Network|driver=Driver" + trafficColumns +
			"|droppedin#=Dropped in|droppedout#=Dropped out|why=Not counted"),
		Row: func(i int) table.Row {
			e := s.Endpoints[at[i]]
			t := cmp.Or(e.Traffic, none)
			cells := traffic([]string{e.Endpoint, e.Network, string(e.Driver)}, &t.Bytes.In, &t.Packets.In,
				&t.Bytes.Out,
				&t.Packets.Out, e.NotCounted, dropped(&t.Drops.In), dropped(&t.Drops.Out))
			if t == none {
				for i := 3; i < 7; i++ {
					cells[i] = table.Cell{Text: "-", Number: -1}
				}
			}
			return table.Row{ID: table.ID("endpoint", e.Endpoint, e.Network), Cells: cells}
		}}
}
