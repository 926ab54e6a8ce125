package hosttls

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fairlead/internal/gateway/rule"
	"fairlead/internal/model/gateway"
)

// Use is what a router wants of the connections to its hosts at an entry point.
type Use struct {
	Entry, Options string
	// Domains are the names that its rule has.
	Domains []string
	// Open says that the rule matches hosts that it does not name.
	Open bool
	// patterns match the hosts of all of its requests, unless Open.
	patterns []string
}

// NewUse returns what a router with the options and the rule wants at the entry point.
func NewUse(entry, options string, r *rule.Rule) Use {
	use := Use{Entry: entry, Options: options, Domains: r.Domains()}
	patterns, ok := r.HostPatterns()
	if use.patterns, use.Open = patterns, !ok; use.Open {
		use.patterns = use.Domains
	}
	return use
}

// Verdict says what becomes of a router because of its TLS options: why it is disabled (Closed), or what is
// doubtful.
type Verdict struct{ Closed, Notes []string }

// holder is the router whose options the hosts of a pattern have.
type holder struct{ router, options string }

// decision has what Decide gets, and what it has decided so far.
type decision struct {
	options Options
	uses    map[string][]Use
	// unusable says why options cannot be used.
	unusable func(options string) string
	holders  map[[2]string]holder
	hosts    Hosts
}

// Decide returns the options by host, and the verdicts that are not empty, from the uses of each router. Unusable says
// why the options with a name cannot be used. Decide goes through the routers from the one whose options count most:
// the first one for a pattern decides its options. Others whose own options are weaker or equal are served with these.
// The rest is disabled: its options would not be applied.
func Decide(options Options, entries []gateway.EntryPoint, uses map[string][]Use,
	unusable func(options string) string) (Hosts, map[string]Verdict) {
	d := &decision{options: options, uses: uses, unusable: unusable, holders: map[[2]string]holder{},
		hosts: Hosts{options: options, entries: map[string]string{}}}
	for _, e := range entries {
		if e.TLS != nil && e.TLS.Options != "" {
			d.hosts.entries[e.Name] = e.TLS.Options
		}
	}
	verdicts, needed := map[string]Verdict{}, len(d.hosts.entries) > 0
	for _, name := range d.byStrictness() {
		v := d.judge(name)
		if len(v.Closed)+len(v.Notes) > 0 {
			verdicts[name] = v
		}
		if len(v.Closed) == 0 {
			needed = d.hold(name) || needed
		}
	}
	if needed {
		d.hosts.byHost = map[[2]string]string{}
		for key, h := range d.holders {
			d.hosts.byHost[key] = h.options
		}
	}
	return d.hosts, verdicts
}

// judge returns the verdict about a router.
func (d *decision) judge(router string) (v Verdict) {
	for _, use := range d.uses[router] {
		v.Closed = append(v.Closed, d.cannotApply(use)...)
		d.compare(&v, use)
	}
	return v
}

// hold gives the options of a router to the hosts that have none yet, and reports whether one of its options is not the
// default.
func (d *decision) hold(router string) (other bool) {
	for _, use := range d.uses[router] {
		other = other || use.Options != Default
		for _, pattern := range use.patterns {
			key := [2]string{use.Entry, pattern}
			if _, ok := d.holders[key]; !ok && !isAddress(pattern) {
				d.holders[key] = holder{router, use.Options}
			}
		}
	}
	return other
}

// byStrictness returns the names of the routers, those whose options count most first: routers of files and clusters
// before those of labels, which any container may set; then the strictest options; then by name.
func (d *decision) byStrictness() []string {
	options := slices.SortedFunc(maps.Keys(d.options.Configs), d.options.compare)
	place := make(map[string]int, len(options))
	for i, name := range options {
		place[name] = i
	}
	first := func(name string) int {
		least := len(options)
		for _, use := range d.uses[name] {
			if at, ok := place[use.Options]; ok {
				least = min(least, at)
			}
		}
		return least
	}
	labels := func(name string) int { return order(strings.HasSuffix(name, "@docker")) }
	return slices.SortedFunc(maps.Keys(d.uses), func(x, y string) int {
		return cmp.Or(cmp.Compare(labels(x), labels(y)), cmp.Compare(first(x), first(y)), cmp.Compare(x, y))
	})
}

// cannotApply says why the options of a router cannot be applied to all of its requests. Hosts that no router names
// have the options of the entry point.
func (d *decision) cannotApply(use Use) []string {
	switch {
	case d.options.Configs[use.Options] == nil:
		return []string{d.unusable(use.Options)}
	case use.Options == Default || use.Options == d.hosts.ofEntry(use.Entry):
		return nil
	case use.Open:
		return []string{fmt.Sprintf("TLS options %s cannot be applied, because the rule matches hosts that it does not "+
			"name: a handshake has a name only; add Host(`NAME`), Host(`*.NAME`) or Host(`*`)", use.Options)}
	case len(use.patterns) > 0 && !slices.ContainsFunc(use.patterns, func(p string) bool { return !isAddress(p) }):
		return []string{fmt.Sprintf("TLS options %s cannot be applied, because clients of an IP address send no server "+
			"name: use Host(`*`), or options with the name default", use.Options)}
	}
	return nil
}

// compare adds the hosts of which another router has decided the options.
func (d *decision) compare(v *Verdict, use Use) {
	for _, pattern := range use.patterns {
		h, ok := d.holders[[2]string{use.Entry, pattern}]
		if !ok || h.options == use.Options {
			continue
		}
		text := fmt.Sprintf("host %s has the TLS options %s of router %s at entry point %s", pattern, h.options, h.router,
			use.Entry)
		if d.options.Meets(h.options, use.Options) {
			v.Notes = append(v.Notes, text+", which are as strict as "+use.Options)
		} else {
			v.Closed = append(v.Closed, text+", which are not as strict as "+use.Options+
				": use the same options for both")
		}
	}
}
