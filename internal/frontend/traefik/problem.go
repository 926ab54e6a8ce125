package traefik

import (
	"fmt"

	"fairlead/internal/frontend/traefik/tree"
	"fairlead/internal/gateway/rule"
)

// Problem is what is wrong with a part of the configuration.
type Problem struct {
	// Object is such as "router web@docker". It is empty if the problem concerns the
	// whole source.
	Object string
	// Source is "container NAME", or the path of a file.
	Source string
	Text   string
	// Warning means that the object is in use nevertheless. Without it, the object is not used.
	Warning bool
	// Rule is the rule of an HTTP router that is left out, for explanations.
	Rule string
}

// String returns the problem in one line.
func (p Problem) String() string {
	if p.Object == "" {
		return fmt.Sprintf("%s: %s", p.Source, p.Text)
	}
	return fmt.Sprintf("%s: %s: %s", p.Source, p.Object, p.Text)
}

// reporter collects the problems of one source.
type reporter struct {
	source, provider string
	problems         []Problem
	// declared accepts the keys that only fairlead.yaml has. found are all mistakes.
	declared bool
	found    []tree.Mistake
	// expressions is the size of the regular expressions in the rules of the problems.
	expressions int
}

// object returns the name of an object in a problem.
func (r *reporter) object(kind, name string) string { return kind + " " + name + "@" + r.provider }

// fail reports why an object is left out.
func (r *reporter) fail(object, format string, args ...any) {
	r.problems = append(r.problems, Problem{Object: object, Source: r.source, Text: fmt.Sprintf(format, args...)})
}

// warn reports a problem of an object that stays in the configuration.
func (r *reporter) warn(object, format string, args ...any) {
	r.problems = append(r.problems, Problem{Object: object, Source: r.source, Text: fmt.Sprintf(format, args...),
		Warning: true})
}

// decode decodes a value, with the keys that the source may have.
func (r *reporter) decode(n *tree.Node, key string, into any) []tree.Mistake {
	if r.declared {
		return tree.DecodeDeclared(n, key, into)
	}
	return tree.Decode(n, key, into)
}

// mistakes reports mistakes about an object, and whether it can be used nevertheless.
func (r *reporter) mistakes(object string, found []tree.Mistake) (usable bool) {
	usable = true
	r.found = append(r.found, found...)
	for _, m := range found {
		r.problems = append(r.problems, Problem{Object: object, Source: r.source, Text: m.Error(), Warning: m.Warning})
		usable = usable && m.Warning
	}
	return usable
}

// keepRule adds the rule of an HTTP router that is left out to its last problem. The rules of one source are
// within the limit of the expressions that a container may have.
func (r *reporter) keepRule(router *tree.Node) {
	text := router.Child("rule")
	if text == nil {
		return
	}
	r.expressions += sizeOfRule(maxExpressions-r.expressions, text.Value(), "", rule.Read)
	if r.expressions <= maxExpressions {
		r.problems[len(r.problems)-1].Rule = text.Value()
	}
}
