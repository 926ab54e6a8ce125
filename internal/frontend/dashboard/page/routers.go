package page

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"fairlead/internal/escape"
	"fairlead/internal/frontend/dashboard/source"
	"fairlead/internal/frontend/dashboard/table"
	"fairlead/internal/gateway/shown"
	"fairlead/internal/wording"
)

func routers() Page {
	return Page{Path: "routers", Title: "Routers", needs: hasGateway, command: func(q url.Values) string {
		if at := q.Get("url"); at != "" {
			return "fairlead explain " + escape.Shell(at)
		}
		return "fairlead gateway routers; fairlead gateway services; fairlead gateway middlewares"
	}, Question: "Which router takes a URL, what conflicts, which server is out and why.",
		view: func(v *Visit) []Section {
			g, ok := get(v, v.Sources.Gateway, "gateway")
			if !ok {
				return nil
			}
			if !g.Runs {
				return []Section{{Lines: []string{noGateway}}}
			}
			first := Section{ID: "ask", Title: "Which router takes this URL", Ask: &Ask{Action: v.link("routers"),
				Button: "Find the router", Fields: []Field{{Label: "URL", Name: "url", Value: v.Query.Get("url"),
					Size:    50,
					Example: "https://shop.example.org/cart"}}}}
			all := []Section{first}
			if at := v.Query.Get("url"); at != "" {
				all = append(all, answerSections(v, at)...)
			}
			for _, name := range slices.Sorted(maps.Keys(g.RawData.Sources)) {
				all[0].Items = append(all[0].Items, Item{State: table.Bad, Mark: g.RawData.Sources[name].Status,
					What: "source " + name, Text: strings.Join(g.RawData.Sources[name].Errors, "; ")})
			}
			list := func(name string, of func(source.Gateway) []listed) []listed {
				all, _ := derive(v, v.Sources.Gateway, "gateway", name, of)
				return all
			}
			return append(all, Section{ID: "routers", Title: "Routers",
				Table: v.tabled(listTable("", "Routers", list("routers", routerList), "Protocol",
					"Name", "Entry points", "Rule", "Service", "State", "Reason"))},
				Section{ID: "services", Title: "Services of the gateway", Table: v.tabled(listTable("s",
					"Services of the gateway", list("services", serviceList), "Protocol", "Name", "Type", "Servers",
					"State", "Reason"))},
				Section{ID: "middlewares", Title: "Middlewares", Table: v.tabled(listTable("m", "Middlewares",
					list("middlewares", middlewareList), "Protocol", "Name", "Type", "Used by", "State", "Reason"))})
		}}
}

const noGateway = "The daemon runs no gateway: declare one with `gateway:` in fairlead.yaml."

// listed is an object of the gateway: the cells that `fairlead gateway` prints, and how good its state is.
type listed struct {
	words []string
	state table.State
}

// listedRows returns rows of the command line as objects, the worst first. status is the index of the state.
func listedRows(rows [][]string, status int) []listed {
	states := map[string]table.State{"enabled": table.OK, "warning": table.Warn, "disabled": table.Bad}
	all := make([]listed, len(rows))
	for i, row := range rows {
		all[i] = listed{row, states[row[status]]}
		if all[i].state == table.OK && status+1 < len(row) && row[status+1] != "-" {
			all[i].state = table.Warn
		}
	}
	sorted := make([]listed, len(all))
	for i, at := range table.Sorted(len(all), func(a, b int) int { return order[all[a].state] - order[all[b].state] }) {
		sorted[i] = all[at]
	}
	return sorted
}

func routerList(g source.Gateway) []listed {
	rows := wording.RouterRows(nil, "http", g.Routers)
	rows = wording.RouterRows(rows, "tcp", g.TCPRouters)
	return listedRows(wording.RouterRows(rows, "udp", g.UDPRouters), 5)
}

func serviceList(g source.Gateway) []listed {
	rows := wording.GatewayServiceRows(nil, "http", g.Services)
	rows = wording.GatewayServiceRows(rows, "tcp", g.TCPServices)
	all := listedRows(wording.GatewayServiceRows(rows, "udp", g.UDPServices), 4)
	for i := range all {
		if all[i].state == table.OK && strings.Contains(all[i].words[3], " down") {
			all[i].state = table.Warn
		}
	}
	return all
}

func middlewareList(g source.Gateway) []listed {
	return listedRows(wording.MiddlewareRows(wording.MiddlewareRows(nil, "http", g.Middlewares), "tcp",
		g.TCPMiddlewares), 4)
}

// listTable shows objects of the gateway. The first column is their name.
func listTable(id, caption string, all []listed, titles ...string) table.Table {
	t := table.Table{ID: id, Caption: caption, N: len(all), Empty: "There is none."}
	status := 0
	for i, title := range titles {
		if title == "State" {
			status = i
		}
		t.Columns = append(t.Columns, table.Column{Key: strings.ReplaceAll(strings.ToLower(title), " ", ""),
			Title: title})
	}
	t.Columns[0], t.Columns[1] = t.Columns[1], t.Columns[0]
	t.Row = func(i int) table.Row {
		row := table.Row{ID: table.ID(caption, all[i].words[0], all[i].words[1]), Cells: table.Texts(all[i].words...)}
		row.Cells[status].State = all[i].state
		row.Cells[0], row.Cells[1] = row.Cells[1], row.Cells[0]
		return row
	}
	return t
}

// answerSections shows what happens to a request.
func answerSections(v *Visit, at string) []Section {
	var a shown.Answer
	q := url.Values{"url": {at}, "method": {"GET"}}
	if err := v.Gateway(v.Context, "/api/explain?"+q.Encode(), &a); err != nil {
		return []Section{{ID: "answer", Lines: []string{err.Error()}}}
	}
	rows := wording.AnswerRows(a)
	t := table.Table{ID: "a", Caption: "What the request meets", Small: true, N: len(rows),
		Empty:   "The request meets nothing.",
		Columns: table.Columns("kind=Step|name=Name|more=Details"), Row: func(i int) table.Row {
			r := rows[i]
			return table.Row{ID: table.ID("answer", r[0], r[1]), Cells: table.Texts(r[0], r[1], wording.OrDash(r[2]))}
		}}
	return []Section{{ID: "answer", Title: "GET " + at, Table: v.tabled(t), Lines: wording.AnswerLines(a)}}
}

func certificates() Page {
	return Page{Path: "certificates", Title: "Certificates", needs: hasGateway,
		command:  fixed("fairlead gateway certificates"),
		Question: "When each certificate ends, who has issued it, and why one is not renewed. The next to end is first.",
		view: func(v *Visit) []Section {
			g, ok := get(v, v.Sources.Gateway, "gateway")
			if !ok {
				return nil
			}
			if !g.Runs {
				return []Section{{Lines: []string{noGateway}}}
			}
			return []Section{{ID: "certificates", Table: v.tabled(certificateTable(g.Certificates, v.now))}}
		}}
}

// certificateState says how good a certificate is.
func certificateState(c shown.Certificate, now time.Time) table.State {
	switch {
	case c.ACME != nil && c.ACME.State == "failed":
		return table.Bad
	case c.NotAfter.IsZero():
		return table.Warn
	case now.After(c.NotAfter):
		return table.Bad
	case c.NotAfter.Sub(now) < soon && !c.Default:
		return table.Warn
	}
	return table.OK
}

// certificateEnd says when a certificate ends.
func certificateEnd(c shown.Certificate, now time.Time) string {
	text := "there is none yet"
	if !c.NotAfter.IsZero() {
		left := c.NotAfter.Sub(now)
		text = "ends in " + days(left)
		if left < 0 {
			text = "has ended " + days(-left) + " ago"
		}
	}
	if c.ACME != nil && c.ACME.Reason != "" {
		text += ": " + c.ACME.Reason
	}
	return text
}

// days writes a duration in its largest unit, as the command line writes ages.
func days(d time.Duration) string { return wording.Age(time.Now().Add(-d)) }

func certificateTable(all []shown.Certificate, now time.Time) table.Table {
	at := table.Sorted(len(all), func(a, b int) int { return all[a].NotAfter.Compare(all[b].NotAfter) })
	return table.Table{Caption: "Certificates", N: len(all), Empty: "The gateway has no certificate.",
		Columns: table.Columns("names=Names|end=End|until=Valid until (UTC)|issuer=Issuer|use=Use|resolver=Resolver|" +
			"state=State|next=Next attempt (UTC)|reason=Reason"),
		Row: func(i int) table.Row {
			c := all[at[i]]
			w := wording.CertificateRow(c)
			cells := table.Texts(w[0], certificateEnd(c, now), w[2], w[1], w[3], w[4], w[5], w[6], w[7])
			cells[1].State, cells[1].Number = certificateState(c, now), float64(c.NotAfter.Unix())
			return table.Row{ID: table.ID("certificate", w[0], w[4], w[3]), Cells: cells}
		}}
}
