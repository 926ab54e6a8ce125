package page

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/explain/doctor"
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
	if hasDaemon(v.Site) {
		services, _ := get(v, v.Sources.Services, "services")
		all = append(all, wrongServices(v, services)...)
		attachments, _ := get(v, v.Sources.Attachments, "attachments")
		all = append(all, wrongAttachments(attachments)...)
		networks, _ := get(v, v.Sources.Networks, "networks")
		for _, name := range slices.Sorted(maps.Keys(networks.Unavailable)) {
			all = append(all, Item{State: table.Bad, Mark: "unavailable", What: "network " + name,
				Text: networks.Unavailable[name]})
		}
		cluster, _ := get(v, v.Sources.Cluster, "cluster")
		all = append(all, wrongCluster(v, cluster)...)
		stats, _ := get(v, v.Sources.Stats, "counters")
		all = append(all, wrongFill("conntrack table", stats.Conntrack)...)
		all = append(all, wrongFill("eBPF flow table", stats.EBPF)...)
	}
	if hasGateway(v.Site) {
		gateway, _ := get(v, v.Sources.Gateway, "gateway")
		all = append(all, wrongGateway(v, gateway)...)
	}
	if hasHost(v.Site) {
		host, _ := get(v, v.Sources.Host, "host")
		all = append(all, found(host.Findings)...)
	}
	sorted := make([]Item, len(all))
	for i, at := range table.Sorted(len(all), func(a, b int) int { return order[all[a].State] - order[all[b].State] }) {
		sorted[i] = all[at]
	}
	return sorted
}

func wrongServices(v *Visit, services []api.ServiceView) (all []Item) {
	for _, s := range services {
		if state := serviceState(s); state != table.OK {
			all = append(all, Item{State: state, Mark: string(s.Status), What: "service " + s.Name,
				Link: v.link("service", "name", s.Name), Text: wording.ServiceRow(s)[5]})
		}
		for _, r := range s.Servers {
			if state := realState(r.State); state == table.Bad || state == table.Warn {
				all = append(all, Item{State: state, Mark: string(r.State), What: "real server " + wording.RealText(r) +
					" of " + s.Name, Link: v.link("service", "name", s.Name), Text: wording.RealRow(s, r)[6],
					Age: since(r.Since)})
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

func wrongCluster(v *Visit, c source.Cluster) (all []Item) {
	if !c.Member {
		return nil
	}
	link := v.link("cluster")
	if err := wording.ClusterFailure(c.Status); err != nil {
		all = append(all, Item{State: table.Bad, Mark: "failed", What: "cluster " + c.Status.Name, Link: link,
			Text: err.Error(), Age: since(c.Status.Etcd.Since)})
	}
	for _, n := range c.Status.Nodes {
		if !n.Alive || n.Frozen != "" {
			all = append(all, Item{State: table.Bad, Mark: wording.NodeState(n), What: "node " + n.Name, Link: link,
				Text: wording.OrDash(n.Frozen)})
		}
		for _, p := range n.Problems {
			all = append(all, Item{State: table.Bad, Mark: "problem", What: "node " + n.Name, Link: link, Text: p})
		}
	}
	for _, a := range c.Status.Addresses {
		if state := addressState(a); state != table.OK {
			all = append(all, Item{State: state, Mark: wording.AddressState(a), What: "address " + a.Address.String(),
				Link: link, Text: wording.OrDash(a.Barred), Age: since(a.Since)})
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

func wrongGateway(v *Visit, g source.Gateway) (all []Item) {
	for _, name := range slices.Sorted(maps.Keys(g.Sources)) {
		all = append(all, Item{State: table.Bad, Mark: "problem", What: "source " + name, Link: v.link("routers"),
			Text: strings.Join(g.Sources[name].Errors, "; ")})
	}
	for _, r := range routerList(g) {
		if r.state != table.OK {
			all = append(all, Item{State: r.state, Mark: r.words[5], What: r.words[0] + " router " + r.words[1],
				Link: v.link("routers", "q", r.words[1]), Text: r.words[6]})
		}
	}
	for _, c := range g.Certificates {
		if state := certificateState(c, v.now); state == table.Bad || state == table.Warn {
			all = append(all, Item{State: state, Mark: "certificate", What: strings.Join(c.Names, ", "),
				Link: v.link("certificates"), Text: certificateEnd(c, v.now)})
		}
	}
	return all
}

// found returns the findings of the doctor, without its notes: those say what costs something.
func found(all []doctor.Finding) (items []Item) {
	for _, f := range all {
		state := map[doctor.Severity]table.State{doctor.Problem: table.Bad, doctor.Warning: table.Warn}[f.Severity]
		if state != "" {
			items = append(items, Item{State: state, Mark: string(f.Severity), What: f.Check,
				Text: f.Seen + ". " + f.Why,
				Fix:  f.Fix})
		}
	}
	return items
}
