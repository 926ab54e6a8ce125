package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"fairlead/internal/gateway/rule"
	"fairlead/internal/gateway/stream"
	"fairlead/internal/gateway/tlsconfig"
	"fairlead/internal/model/gateway"
)

// tlsUse is what a router wants of the connections to its hosts at an entry point.
type tlsUse struct {
	entry, options string
	// domains are the names that its rule has.
	domains []string
	// patterns match the hosts of all of its requests, unless open.
	patterns []string
	open     bool
}

func newTLSUse(entry, options string, r *rule.Rule) tlsUse {
	use := tlsUse{entry: entry, options: options, domains: r.Domains()}
	patterns, ok := r.HostPatterns()
	if use.patterns, use.open = patterns, !ok; use.open {
		use.patterns = use.domains
	}
	return use
}

// verdict says what becomes of a router because of its TLS options: why it is disabled, or what is doubtful.
type verdict struct{ closed, notes []string }

// holder is the router whose options the hosts of a pattern have.
type holder struct{ router, options string }

// decideTLS decides which TLS options each host has, and which routers are disabled because theirs cannot be
// applied. Routers whose verdict differs from the last one are built again.
func (b *builder) decideTLS(sameOptions bool) {
	differs := !sameOptions
	for _, name := range namesOfKind(b.changed, "router") {
		_, had := b.kept.tls[name]
		delete(b.kept.tls, name)
		uses := b.tlsUses(name, b.config.HTTP.Routers[name])
		if len(uses) > 0 {
			b.kept.tls[name] = uses
		}
		differs = differs || had || len(uses) > 0
	}
	if !differs {
		return // b.tls is that of the last configuration
	}
	last := b.kept.verdicts
	b.tls.hosts, b.kept.verdicts = b.settle()
	for _, verdicts := range []map[string]verdict{last, b.kept.verdicts} {
		for name := range verdicts {
			if !reflect.DeepEqual(last[name], b.kept.verdicts[name]) {
				b.buildAgain(object{"router", name})
			}
		}
	}
}

// allows records the verdict about a router, and reports whether it may serve.
func (b *builder) allows(router string) bool {
	v := b.kept.verdicts[router]
	for _, reason := range v.closed {
		b.status.disable("router", router, reason)
	}
	for _, note := range v.notes {
		b.status.warn("router", router, note)
	}
	return len(v.closed) == 0
}

// buildAgain adds an object that has not changed itself.
func (b *builder) buildAgain(o object) {
	if b.changed[o] {
		return
	}
	b.changed[o] = true
	b.status.forget(o)
	for _, s := range b.known {
		if (object{s.Kind, s.Name}) == o {
			b.status.add(s)
		}
	}
}

// tlsUses returns what a router wants of connections. A router that cannot be used wants nothing.
func (b *builder) tlsUses(name string, value *gateway.Router) (uses []tlsUse) {
	if value == nil || b.status.of("router", name).State == Disabled {
		return nil
	}
	parsed, err := b.parse(name, value)
	if err != nil {
		return nil
	}
	for _, at := range b.entriesOf(value) {
		i := slices.IndexFunc(b.static.EntryPoints, func(e gateway.EntryPoint) bool { return e.Name == at })
		if i < 0 {
			continue
		}
		if options := optionsAt(b.static.EntryPoints[i], value); options != "" {
			uses = append(uses, newTLSUse(at, options, parsed))
		}
	}
	return uses
}

// optionsAt returns the name of the TLS options of a router at an entry point, empty without TLS. A router that names
// none has those of the entry point.
func optionsAt(e gateway.EntryPoint, r *gateway.Router) string {
	var own, general string
	if r.TLS != nil {
		own = r.TLS.Options
	}
	if e.TLS != nil {
		general = e.TLS.Options
	}
	if r.TLS == nil && e.TLS == nil {
		return ""
	}
	return cmp.Or(own, general, defaultOptions)
}

// settle returns the options by host, and the verdicts that are not empty. It goes through the routers from the one
// whose options count most: the first one for a pattern decides its options. Others whose own options are weaker or
// equal are served with these. The rest is disabled: its options would not be applied.
func (b *builder) settle() (hostOptions, map[string]verdict) {
	holders, verdicts, all := map[[2]string]holder{}, map[string]verdict{}, hostOptions{entries: map[string]string{}}
	for _, e := range b.static.EntryPoints {
		if e.TLS != nil && e.TLS.Options != "" {
			all.entries[e.Name] = e.TLS.Options
		}
	}
	needed := len(all.entries) > 0
	for _, name := range b.byStrictness() {
		var v verdict
		for _, use := range b.kept.tls[name] {
			v.closed = append(v.closed, b.cannotApply(use, all.ofEntry(use.entry))...)
			v.compare(holders, use, b.tls.meets)
		}
		if len(v.closed)+len(v.notes) > 0 {
			verdicts[name] = v
		}
		if len(v.closed) > 0 {
			continue
		}
		for _, use := range b.kept.tls[name] {
			needed = needed || use.options != defaultOptions
			for _, pattern := range use.patterns {
				key := [2]string{use.entry, pattern}
				if _, ok := holders[key]; !ok && !isAddress(pattern) {
					holders[key] = holder{name, use.options}
				}
			}
		}
	}
	if !needed {
		return all, verdicts
	}
	all.byHost = map[[2]string]string{}
	for key, h := range holders {
		all.byHost[key] = h.options
	}
	return all, verdicts
}

// byStrictness returns the names of the routers, those whose options count most first: routers of files and clusters
// before those of labels, which any container may set; then the strictest options; then by name.
func (b *builder) byStrictness() []string {
	options := slices.SortedFunc(maps.Keys(b.tls.options), b.tls.compare)
	place := make(map[string]int, len(options))
	for i, name := range options {
		place[name] = i
	}
	first := func(name string) int {
		least := len(options)
		for _, use := range b.kept.tls[name] {
			if at, ok := place[use.options]; ok {
				least = min(least, at)
			}
		}
		return least
	}
	labels := func(name string) int { return order(strings.HasSuffix(name, "@docker")) }
	return slices.SortedFunc(maps.Keys(b.kept.tls), func(x, y string) int {
		return cmp.Or(cmp.Compare(labels(x), labels(y)), cmp.Compare(first(x), first(y)), cmp.Compare(x, y))
	})
}

// cannotApply says why the options of a router cannot be applied to all of its requests. Hosts that no router names
// have the options of the entry point.
func (b *builder) cannotApply(use tlsUse, ofEntry string) []string {
	switch {
	case b.tls.options[use.options] == nil:
		return []string{stream.Unusable(objects{b.status}, "tls options", use.options, b.config.TLS.Options)}
	case use.options == defaultOptions || use.options == ofEntry:
		return nil
	case use.open:
		return []string{fmt.Sprintf("TLS options %s cannot be applied, because the rule matches hosts that it does not "+
			"name: a handshake has a name only; add Host(`NAME`), Host(`*.NAME`) or Host(`*`)", use.options)}
	case len(use.patterns) > 0 && !slices.ContainsFunc(use.patterns, func(p string) bool { return !isAddress(p) }):
		return []string{fmt.Sprintf("TLS options %s cannot be applied, because clients of an IP address send no server "+
			"name: use Host(`*`), or options with the name default", use.options)}
	}
	return nil
}

// compare adds the hosts of which another router has decided the options.
func (v *verdict) compare(holders map[[2]string]holder, use tlsUse, meets func(have, need string) bool) {
	for _, pattern := range use.patterns {
		h, ok := holders[[2]string{use.entry, pattern}]
		if !ok || h.options == use.options {
			continue
		}
		text := fmt.Sprintf("host %s has the TLS options %s of router %s at entry point %s", pattern, h.options, h.router,
			use.entry)
		if meets(h.options, use.options) {
			v.notes = append(v.notes, text+", which are as strict as "+use.options)
		} else {
			v.closed = append(v.closed, text+", which are not as strict as "+use.options+": use the same options for both")
		}
	}
}

// meets reports whether connections with some options satisfy others.
func (n *tlsNames) meets(have, need string) bool {
	if have == need {
		return true
	}
	a, b := n.options[have], n.options[need]
	return a != nil && b != nil && (n.sniStrict[have] || !n.sniStrict[need]) && tlsconfig.AtLeast(a, b)
}

// compare orders names of options, the strictest ones first. Those that cannot be used are last.
func (n *tlsNames) compare(x, y string) int {
	a, b := n.options[x], n.options[y]
	if a == nil || b == nil {
		return cmp.Or(cmp.Compare(order(a == nil), order(b == nil)), cmp.Compare(x, y))
	}
	return cmp.Or(tlsconfig.Compare(a, b), cmp.Compare(order(!n.sniStrict[x]), order(!n.sniStrict[y])),
		cmp.Compare(x, y))
}

// order orders false before true.
func order(last bool) int {
	if last {
		return 1
	}
	return 0
}
