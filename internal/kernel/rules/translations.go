package rules

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/model"
)

// Translation is a rule that changes the destination of packets for the host (a
// port mapping), with the conditions of the rules that jump to it.
type Translation struct {
	Table string `json:"table"`
	Chain string `json:"chain"`
	// Hooks are where packets match it: prerouting for packets from other hosts,
	// output for those of the host's processes.
	Hooks []string `json:"hooks"`
	Proto model.Proto
	// Addr is the destination of the packets; the zero value means any.
	Addr  netip.Prefix
	Ports model.PortRange
	Rule  Rule
}

// Translations returns all rules that translate destinations, one entry per
// protocol and port range. A rule without a port applies to all ports.
func (rs Ruleset) Translations() []Translation {
	t := translations{Ruleset: rs, at: map[string]int{}}
	for _, hook := range []string{"prerouting", "output"} {
		for _, c := range rs {
			if c.Hook == hook && c.Type == "nat" {
				t.walk(c, nil, hook, 0)
			}
		}
	}
	return t.found
}

// translations collects the entries. The map at finds an entry again at another
// hook.
type translations struct {
	Ruleset
	found []Translation
	at    map[string]int
}

func (ts *translations) walk(c Chain, before []Condition, hook string, depth int) {
	for _, r := range c.Rules {
		conditions := append(slices.Clone(before), r.Conditions...)
		switch r.Action {
		case Jump, Goto:
			if to, ok := ts.Find(c.Table, r.Chain); ok && depth < maxDepth {
				ts.walk(to, conditions, hook, depth+1)
			}
		case DNAT, Redirect:
			for _, t := range splitByPorts(conditions) {
				t.Table, t.Chain, t.Rule = c.Table, c.Name, r
				ts.add(t, hook)
			}
		}
	}
}

// add adds an entry, or adds the hook to an existing equal entry.
func (ts *translations) add(t Translation, hook string) {
	key := fmt.Sprint(t.Table, t.Chain, t.Proto, t.Addr, t.Ports, t.Rule)
	if i, again := ts.at[key]; again {
		if !slices.Contains(ts.found[i].Hooks, hook) {
			ts.found[i].Hooks = append(ts.found[i].Hooks, hook)
		}
		return
	}
	t.Hooks = []string{hook}
	ts.at[key] = len(ts.found)
	ts.found = append(ts.found, t)
}

// splitByPorts returns one translation per protocol, address and port range that
// the conditions allow. It ignores conditions with Not, so the result may be too
// general; Translate is exact.
func splitByPorts(conditions []Condition) []Translation {
	all := []Translation{{Ports: model.PortRange{First: 1, Last: 65535}}}
	for _, c := range conditions {
		if c.Not || c.In == nil || !slices.ContainsFunc(c.Fields,
			func(f Field) bool { return f == Protocol || f == Port || f == Destination }) {
			continue
		}
		var next []Translation
		for _, t := range all {
			for _, tuple := range c.In {
				next = append(next, t.with(c.Fields, tuple))
			}
		}
		all = next
	}
	// Without a protocol, the rule applies to both that have ports.
	for i := range all {
		if all[i].Proto == "" {
			all[i].Proto = model.TCP
			udp := all[i]
			udp.Proto = model.UDP
			all = append(all, udp)
		}
	}
	return slices.DeleteFunc(all, func(t Translation) bool { return t.Proto != model.TCP && t.Proto != model.UDP })
}

func (t Translation) with(fields []Field, tuple []Range) Translation {
	for i, f := range fields {
		switch f {
		case Port:
			t.Ports, _ = tuple[i].Ports()
		case Destination:
			t.Addr, _ = tuple[i].Prefix()
		case Protocol:
			t.Proto = "other"
			for name, number := range protocols {
				if tuple[i].First[0] <= number && number <= tuple[i].Last[0] {
					t.Proto = name
				}
			}
		}
	}
	return t
}
