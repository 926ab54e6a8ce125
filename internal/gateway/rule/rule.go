// Package rule parses and matches the rules of routers: Traefik's expressions such as
// Host(`shop.example.com`) && PathPrefix(`/api`), in the syntaxes of v2 and v3.
//
// A rule is a tree of matchers that &&, || and ! combine. Parse compiles what a matcher
// compares: names, prefixes and regular expressions. Matching allocates nothing except for
// matchers of the query, and for regular expressions of paths with escaped characters.
package rule

import (
	"fmt"
	"strings"

	"fairlead/internal/expression"
)

// Rule is a parsed rule. It is immutable, and safe for concurrent use.
type Rule struct {
	root     *node
	length   int
	syntax   string
	warnings []string
	tcp      bool
	size     int
}

// Size returns about how many instructions the regular expressions of the rule have when they are compiled.
func (r *Rule) Size() int { return r.size }

// SizeOf returns the size of the regular expressions in the text of a rule, see expression.Size. If the syntax is empty,
// it returns the size in the syntax in which it is the largest: gateways have a setting for rules without one. For a
// text that is no rule, it returns the effort to find that out.
func SizeOf(text, syntax string, read func(text, syntax string) (*Rule, error)) int {
	size := expression.Effort(text)
	r, err := read(text, syntax)
	if err == nil {
		size = r.Size()
	}
	for _, other := range []string{"v3", "v2"} {
		if syntax != "" || err == nil && r.syntax == other {
			continue
		}
		if r, err := read(text, other); err == nil {
			size = max(size, r.Size())
		}
	}
	return size
}

// compile compiles the regular expressions. Their arguments are checked, so it fails only for what a prefix such as
// (?i)
// makes too large.
func (r *Rule) compile() (err error) {
	r.root.visit(true, func(m *matcher, _ bool) {
		for _, t := range m.tests {
			for i := range t.values {
				if v := &t.values[i]; v.how == pattern && err == nil {
					v.re, err = expression.Compile(v.text)
				}
			}
		}
	})
	if err != nil {
		return fmt.Errorf("parse rule: %w", err)
	}
	return nil
}

// Match reports whether the rule matches the request.
func (r *Rule) Match(q *Request) bool { return r.root.match(q) }

// Priority returns the priority of a router that sets none: the length of the rule's
// text in bytes, and -1 for the catch-all HostSNI(`*`) of TCP.
func (r *Rule) Priority() int {
	if m := r.root.leaf; m != nil && r.tcp && m.kind.name == "HostSNI" && len(m.args) == 1 && m.args[0] == "*" {
		return -1
	}
	return r.length
}

// Warnings returns what in the rule most likely does not do what its author meant.
func (r *Rule) Warnings() []string { return r.warnings }

// String returns the rule in canonical form: it parses to an equal rule in the same syntax.
func (r *Rule) String() string {
	var b strings.Builder
	r.root.write(&b)
	return b.String()
}
