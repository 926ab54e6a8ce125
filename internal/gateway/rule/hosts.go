package rule

import (
	"slices"
	"strings"
)

// Hosts returns the hosts, one of which a request must have to match the rule, so that a
// router can be found by its host. If ok is false, the rule can match other hosts too.
// An empty list with ok means that the rule never matches.
func (r *Rule) Hosts() (hosts []string, ok bool) {
	values, ok := r.root.hosts(true)
	for _, v := range values {
		if v.how != equal {
			return nil, false
		}
		hosts = append(hosts, v.text)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts), ok
}

// HostPatterns returns patterns of hosts, one of which the host of a request must match to match
// the rule: NAME, *.NAME for one more label, and * for all hosts. It leaves out names that no
// client can ask for. If ok is false, the rule can match other hosts too.
func (r *Rule) HostPatterns() (patterns []string, ok bool) {
	values, ok := r.root.hosts(true)
	for _, v := range values {
		if v.how == always || isHost(v.text) {
			patterns = append(patterns, v.pattern())
		}
	}
	slices.Sort(patterns)
	return slices.Compact(patterns), ok
}

// pattern returns the value of a host as rules write it.
func (v value) pattern() string {
	switch v.how {
	case always:
		return "*"
	case wildcard:
		return "*" + v.text
	}
	return v.text
}

// hosts returns the names and wildcards, one of which the host must match if the node has the
// result want.
func (n *node) hosts(want bool) (hosts []value, ok bool) {
	switch {
	case n.op == not:
		return n.kids[0].hosts(!want)
	case n.op == leaf && want:
		return n.leaf.hosts()
	case n.op == leaf:
		return nil, false
	}
	all := (n.op == and) == want
	for i, k := range n.kids {
		h, found := k.hosts(want)
		switch {
		case !all && !found:
			return nil, false
		case all && !found:
			continue
		case all && ok:
			hosts = inBoth(hosts, h)
		case all || i == 0:
			hosts = h
		default:
			hosts = append(hosts, h...)
		}
		ok = true
	}
	return hosts, ok
}

// inBoth returns the values for the hosts that both lists match. Of two values that overlap, one
// matches all that the other does. A rule may have thousands.
func inBoth(a, b []value) (both []value) {
	for _, lists := range [][2][]value{{a, b}, {b, a}} {
		patterns := make(map[string]bool, len(lists[1]))
		for _, v := range lists[1] {
			patterns[v.pattern()] = true
		}
		for _, v := range lists[0] {
			if v.coveredBy(patterns) {
				both = append(both, v)
			}
		}
	}
	return both
}

// coveredBy reports whether one of the patterns matches all hosts that the value matches.
func (v value) coveredBy(patterns map[string]bool) bool {
	dot := strings.IndexByte(v.text, '.')
	return patterns["*"] || patterns[v.pattern()] || v.how == equal && dot > 0 && patterns["*"+v.text[dot:]]
}

// hosts returns the names and wildcards that the matcher compares the host with.
func (m *matcher) hosts() (hosts []value, ok bool) {
	for _, t := range m.tests {
		if t.subject != ofHost {
			return nil, false
		}
		for _, v := range t.values {
			if v.how == pattern {
				return nil, false
			}
			hosts = append(hosts, v)
		}
	}
	return hosts, true
}

// Domains returns the names for which a certificate is needed: those of Host and HostSNI
// that are not negated, with wildcards, but without the catch-all * and names that no
// client can ask for.
func (r *Rule) Domains() []string {
	var domains []string
	r.root.visit(true, func(m *matcher, positive bool) {
		if !positive || m.kind.name != "Host" && m.kind.name != "HostSNI" {
			return
		}
		for _, v := range m.tests[0].values {
			name := v.pattern()
			if v.how != always && isHost(v.text) && !slices.Contains(domains, name) {
				domains = append(domains, name)
			}
		}
	})
	return domains
}
