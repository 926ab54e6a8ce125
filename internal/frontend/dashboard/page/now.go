package page

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/explain/doctor"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/dashboard/source"
	"fairlead/internal/frontend/dashboard/table"
	"fairlead/internal/kernel/counter"
	"fairlead/internal/wording"
)

func now() Page {
	return Page{Title: "Now", needs: always, command: fixed("fairlead doctor; fairlead service ls --not-up; " +
		"fairlead events"), Question: "Is anything wrong, since when, and what changed last.",
		view: func(v *Visit) []Section {
			items := wrong(v)
			first := Section{ID: "wrong", Title: fmt.Sprintf("What is wrong: %d", len(items)), Items: limited(items)}
			switch {
			case len(items) > 0:
			case v.oldest.IsZero():
				first.Title, first.Lines = "What is wrong", []string{"Nothing is known yet."}
			case v.gone || v.waiting || len(v.unread) > 0:
				first.Title = "What is wrong"
				first.Lines = []string{"Nothing is wrong in what could be read so far. That is not everything."}
			default:
				first.Lines = []string{"Nothing that this page reads is wrong."}
			}
			parts := []Section{first}
			if !hasDaemon(v.Site) {
				return parts
			}
			if all, ok := get(v, v.Sources.Events, "events"); ok {
				t := eventTable(all[max(0, len(all)-lastEvents):])
				t.Caption, t.Small = "The last events", true
				parts = append(parts, Section{ID: "changed", Title: "What changed last", Table: v.tabled(t)})
			}
			return parts
		}}
}

// The limits of the first page.
const (
	lastEvents = 12
	mostItems  = 50
	// soon is how long before its end a certificate is a problem.
	soon = 14 * 24 * time.Hour
	// full is the fill of a table of the kernel from which it is a problem, in percent.
	full = 80
)

// limited returns the first items, and how many there are beyond.
func limited(items []Item) []Item {
	if len(items) <= mostItems {
		return items
	}
	more := Item{State: table.Warn, Mark: "more", What: fmt.Sprintf("%d more", len(items)-mostItems),
		Text: "the other pages list all"}
	return append(slices.Clone(items[:mostItems]), more)
}

// wrong returns what is wrong, the worst first.
func wrong(v *Visit) (all []Item) {
	v.Sources.Refresh()
	if hasDaemon(v.Site) {
		all = slices.Concat(problems(v, v.Sources.WrongServices, "services", v.wrongServices),
			problems(v, v.Sources.WrongAttachments, "attachments", wrongAttachments),
			problems(v, v.Sources.Networks, "networks", wrongNetworks),
			problems(v, v.Sources.Cluster, "cluster", v.wrongCluster),
			problems(v, v.Sources.Fill, "counters", func(s api.Stats) []Item {
				return append(wrongFill("conntrack table", s.Conntrack), wrongFill("eBPF flow table", s.EBPF)...)
			}))
	}
	if hasGateway(v.Site) {
		all = append(all, problems(v, v.Sources.WrongGateway, "gateway", v.wrongGateway)...)
	}
	if hasHost(v.Site) {
		all = append(all, problems(v, v.Sources.Host, "host", found)...)
	}
	sorted := make([]Item, len(all))
	for i, at := range table.Sorted(len(all), func(a, b int) int { return order[all[a].State] - order[all[b].State] }) {
		sorted[i] = all[at]
	}
	return sorted
}

// problems returns what is wrong in the value of a source.
func problems[T any](v *Visit, s *source.Source[T], what string, of func(T) []Item) []Item {
	all, _ := derive(v, s, what, "wrong", of)
	return all
}

func (s *Site) wrongServices(services []api.ServiceView) (all []Item) {
	for _, of := range services {
		if state := serviceState(of); state != table.OK {
			all = append(all, Item{State: state, Mark: string(of.Status), What: "service " + of.Name,
				Link: s.link("service", "name", of.Name), Text: wording.ServiceRow(of)[5]})
		}
		for _, r := range of.Servers {
			if state := realState(r.State); state == table.Bad || state == table.Warn {
				all = append(all, Item{State: state, Mark: string(r.State), What: "real server " + wording.RealText(r) +
					" of " + of.Name, Link: s.link("service", "name", of.Name), Text: wording.RealRow(of, r)[6],
					Since: r.Since})
			}
		}
	}
	return all
}

func wrongAttachments(attachments []api.View) (all []Item) {
	for _, text := range wording.Unpublished(attachments) {
		all = append(all, Item{State: table.Bad, Mark: "not published", What: "port", Text: text})
	}
	for _, a := range attachments {
		if a.Status == api.Broken && len(a.Publishes) == 0 && a.Network != api.HostNetwork {
			all = append(all, Item{State: table.Bad, Mark: string(a.Status), What: "attachment " + a.Name,
				Text: a.Problem})
		}
	}
	return all
}

func wrongNetworks(n admin.Networks) (all []Item) {
	for _, name := range slices.Sorted(maps.Keys(n.Unavailable)) {
		all = append(all, Item{State: table.Bad, Mark: "unavailable", What: "network " + name,
			Text: n.Unavailable[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(n.Outbound)) {
		if choice := n.Outbound[name]; choice.Unapplied != "" {
			all = append(all, Item{State: table.Bad, Mark: "failed", What: "network " + name, Text: choice.String()})
		}
	}
	return all
}

func (s *Site) wrongCluster(c source.Cluster) (all []Item) {
	if !c.Member {
		return nil
	}
	link := s.link("cluster")
	if err := wording.ClusterFailure(c.Status); err != nil {
		all = append(all, Item{State: table.Bad, Mark: "failed", What: "cluster " + c.Status.Name, Link: link,
			Text: err.Error(), Since: c.Status.Etcd.Since})
	}
	for _, n := range c.Status.Nodes {
		if !n.Alive || n.Frozen != "" {
			all = append(all, Item{State: table.Bad, Mark: wording.NodeState(n), What: "node " + n.Name, Link: link,
				Text: n.Frozen})
		}
		for _, p := range n.Problems {
			all = append(all, Item{State: table.Bad, Mark: "problem", What: "node " + n.Name, Link: link, Text: p})
		}
	}
	for _, a := range c.Status.Addresses {
		if state := addressState(a); state != table.OK {
			all = append(all, Item{State: state, Mark: wording.AddressState(a), What: "address " + a.Address.String(),
				Link: link, Text: a.Barred, Since: a.Since})
		}
	}
	return all
}

func wrongFill(what string, f *counter.Fill) []Item {
	if f == nil || f.Max == 0 || f.Entries*100 < f.Max*full {
		return nil
	}
	return []Item{{State: table.Bad, Mark: "nearly full", What: what, Text: fillText(f)}}
}

func (s *Site) wrongGateway(g source.Gateway) (all []Item) {
	now := time.Now()
	for _, name := range slices.Sorted(maps.Keys(g.Sources)) {
		all = append(all, Item{State: table.Bad, Mark: "problem", What: "source " + name, Link: s.link("routers"),
			Text: strings.Join(g.Sources[name].Errors, "; ")})
	}
	for _, r := range routerList(g) {
		if r.state != table.OK {
			all = append(all, Item{State: r.state, Mark: r.words[5], What: r.words[0] + " router " + r.words[1],
				Link: s.link("routers", "q", r.words[1]), Text: r.words[6]})
		}
	}
	for _, c := range g.Certificates {
		if state := certificateState(c, now); state == table.Bad || state == table.Warn {
			all = append(all, Item{State: state, Mark: "certificate", What: strings.Join(c.Names, ", "),
				Link: s.link("certificates"), Text: certificateEnd(c, now)})
		}
	}
	return all
}

// found returns the findings of the doctor, without its notes: those say what costs something.
func found(h source.Host) (items []Item) {
	for _, f := range h.Findings {
		state := map[doctor.Severity]table.State{doctor.Problem: table.Bad, doctor.Warning: table.Warn}[f.Severity]
		if state != "" {
			items = append(items, Item{State: state, Mark: string(f.Severity), What: f.Check,
				Text: f.Seen + ". " + f.Why,
				Fix:  f.Fix})
		}
	}
	return items
}
