package rule

import "slices"

// Hosts returns the hosts, one of which a request must have to match the rule, so that a
// router can be found by its host. If ok is false, the rule can match other hosts too.
// An empty list with ok means that the rule never matches.
func (r *Rule) Hosts() (hosts []string, ok bool) {
	hosts, ok = r.root.hosts(true)
	slices.Sort(hosts)
	return slices.Compact(hosts), ok
}

// hosts returns the hosts for which the node can have the result want.
func (n *node) hosts(want bool) (hosts []string, ok bool) {
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
			hosts = slices.DeleteFunc(hosts, func(name string) bool { return !slices.Contains(h, name) })
		case all || i == 0:
			hosts = h
		default:
			hosts = append(hosts, h...)
		}
		ok = true
	}
	return hosts, ok
}

// hosts returns the names that the matcher compares the host with.
func (m *matcher) hosts() (hosts []string, ok bool) {
	for _, t := range m.tests {
		if t.subject != ofHost {
			return nil, false
		}
		for _, v := range t.values {
			if v.how != equal {
				return nil, false
			}
			hosts = append(hosts, v.text)
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
			name := v.text
			if v.how == wildcard {
				name = "*" + name
			}
			if v.how != always && isHost(v.text) && !slices.Contains(domains, name) {
				domains = append(domains, name)
			}
		}
	})
	return domains
}
