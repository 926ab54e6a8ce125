package rule

import (
	"fmt"
	"strings"
)

// Failure is a matcher that kept a rule from matching a request.
type Failure struct {
	// Matcher is the matcher as text, with ! if it is negated.
	Matcher string
	// Got is what the request had, with foreign text in quotes.
	Got string
}

// Explain returns the matchers that failed, or nothing if the rule matches the request.
// One operand of && suffices to fail; Explain returns all that do. Of ||, all do.
func (r *Rule) Explain(q *Request) []Failure { return r.root.explain(q, true, r.tcp) }

func (n *node) explain(q *Request, want, tcp bool) (failures []Failure) {
	switch {
	case n.match(q) == want:
		return nil
	case n.op == not:
		return n.kids[0].explain(q, !want, tcp)
	case n.op == leaf && want:
		return []Failure{{n.leaf.String(), n.leaf.got(q, tcp)}}
	case n.op == leaf:
		return []Failure{{"!" + n.leaf.String(), n.leaf.got(q, tcp)}}
	}
	for _, k := range n.kids {
		failures = append(failures, k.explain(q, want, tcp)...)
	}
	return failures
}

// got describes what the tests looked at.
func (m *matcher) got(q *Request, tcp bool) string {
	var parts []string
	for i := range m.tests {
		if s := m.tests[i].got(q, tcp); len(parts) == 0 || parts[len(parts)-1] != s {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, ", ")
}

func (t *test) got(q *Request, tcp bool) string {
	switch t.subject {
	case ofHost:
		what := "host"
		if tcp {
			what = "server name"
		}
		if q.Host == "" {
			return "no " + what
		}
		return fmt.Sprintf("%s %q", what, q.Host)
	case ofPath:
		return fmt.Sprintf("path %q", q.Path)
	case ofDecodedPath:
		return fmt.Sprintf("path %q", q.decodedPath())
	case ofMethod:
		return fmt.Sprintf("method %q", q.Method)
	case ofHeader:
		return describe("header "+t.key, q.Header[t.key])
	case ofQuery, ofFirstQuery:
		return describe(fmt.Sprintf("query parameter %q", t.key), q.parameters()[t.key])
	case ofALPN:
		return describe("protocol", q.ALPN)
	}
	return fmt.Sprintf("client %s", q.Client)
}

func describe(what string, values []string) string {
	if len(values) == 0 {
		return "no " + what
	}
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = fmt.Sprintf("%q", v)
	}
	return what + ": " + list(quoted)
}
