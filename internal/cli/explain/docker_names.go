package explain

import (
	"fairlead/internal/cli/command"
	"fairlead/internal/explain/flow"
)

// explanation replaces the names in the texts of an explanation.
func explanation(n command.DockerNames, e *flow.Explanation) {
	for i := range e.Hops {
		h := &e.Hops[i]
		h.Where, h.What, h.Why, h.Seen = n.Text(h.Where), n.Text(h.What), n.Text(h.Why), n.Text(h.Seen)
	}
	e.Verdict = n.Text(e.Verdict)
	for _, texts := range [][]string{e.Caveats, e.Notes} {
		for i := range texts {
			texts[i] = n.Text(texts[i])
		}
	}
}
