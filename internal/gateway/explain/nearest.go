package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fairlead/internal/gateway/route"
	"fairlead/internal/gateway/rule"
	"fairlead/internal/gateway/shown"
	"fairlead/internal/gateway/status"
	"fairlead/internal/model/gateway"
)

// mostUnrelated is how many routers an answer has at most if some of them are of other hosts.
const mostUnrelated = 5

// The ranks of routers that a request does not take.
const (
	rankConnection = iota // it would match with the other kind of connection
	rankElsewhere         // it would match at another entry point
	rankHost              // its rule has the request's host
	rankUnrelated
)

// candidate is a router that a request does not take.
type candidate struct {
	shown.Nearest
	rank int
}

func (c candidate) compare(other candidate) int {
	return cmp.Or(cmp.Compare(c.rank, other.rank), cmp.Compare(len(c.Why), len(other.Why)),
		cmp.Compare(c.Router, other.Router))
}

// nearest returns routers that a request does not take, and why: the disabled ones, all other routers of
// its host, and some of other hosts. The request arrives at one of the entry points at.
func (s Source) nearest(all, at []gateway.EntryPoint, secure bool, r *rule.Request) []shown.Nearest {
	best := map[string]candidate{}
	for _, e := range all {
		if e.IsUDP() {
			continue
		}
		here := slices.ContainsFunc(at, func(a gateway.EntryPoint) bool { return a.Name == e.Name })
		for _, tls := range []bool{secure, !secure} {
			for _, router := range s.Entries[e.Name].Of(tls).All() {
				c, ok := candidateOf(router, whereElse(e, here, tls, secure), here, r)
				if last, had := best[router.Name]; ok && (!had || c.compare(last) < 0) {
					best[router.Name] = c
				}
			}
		}
	}
	found := s.disabled(r)
	for _, c := range slices.SortedFunc(maps.Values(best), candidate.compare) {
		if c.rank < rankUnrelated || len(found) < mostUnrelated {
			found = append(found, c.Nearest)
		}
	}
	return found
}

// whereElse says why a request does not meet the routers of a table at an entry point. It is empty if the
// request meets them.
func whereElse(e gateway.EntryPoint, here, tls, secure bool) string {
	switch {
	case !here:
		return fmt.Sprintf("it is at the entry point %s (%s), where the request does not arrive", e.Name, e.Address)
	case tls && !secure:
		return "it has tls, so it takes only https"
	case secure && !tls:
		return "it has no tls, so it takes only http: set tls=true"
	}
	return ""
}

// candidateOf explains why a request does not take a router. Routers where the request does not arrive
// are no candidates if they are the gateway's own or of other hosts.
func candidateOf(router *route.Router, elsewhere string, here bool, r *rule.Request) (c candidate, ok bool) {
	c = candidate{Nearest: shown.Nearest{Router: router.Name}, rank: rankUnrelated}
	if elsewhere != "" {
		c.Why = append(c.Why, elsewhere)
	}
	failures := router.Rule.Explain(r)
	for _, f := range failures {
		c.Why = append(c.Why, fmt.Sprintf("%s does not match: the request has %s", f.Matcher, f.Got))
	}
	switch {
	case len(failures) == 0 && here:
		c.rank = rankConnection
	case len(failures) == 0:
		c.rank = rankElsewhere
	case slices.Contains(router.Rule.Domains(), r.Host):
		c.rank = rankHost
	}
	own := strings.HasSuffix(router.Name, "@internal")
	return c, elsewhere == "" || !own && c.rank < rankUnrelated
}

// disabled returns the routers that would match if they could be used, and those with the request's host
// in a rule that cannot be parsed.
func (s Source) disabled(r *rule.Request) (all []shown.Nearest) {
	for _, at := range s.Statuses {
		if at.Kind != "router" || at.State != status.Disabled {
			continue
		}
		text, syntax := at.Rule, ""
		if v := s.Config.HTTP.Routers[at.Name]; v != nil {
			text, syntax = v.Rule, v.RuleSyntax
		}
		if text == "" {
			continue
		}
		parsed, err := rule.Parse(text, syntax)
		if err == nil && parsed.Match(r) || err != nil && strings.Contains(strings.ToLower(text), r.Host) {
			why := "it is disabled: " + strings.Join(at.Reasons, "; ")
			all = append(all, shown.Nearest{Router: at.Name, Why: []string{why}})
		}
	}
	return all
}
