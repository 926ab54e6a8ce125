package wording

import (
	"fmt"
	"strings"
	"time"

	"fairlead/internal/gateway/shown"
)

// AnswerRows returns a table of what a request meets, and AnswerLines what is below it.
func AnswerRows(a shown.Answer) (rows [][]string) {
	row := func(kind, name, more string) { rows = append(rows, []string{kind, name, more}) }
	if a.EntryPoint != "" {
		row("entry point", a.EntryPoint, a.Address)
	}
	if c := a.Certificate; c != nil {
		row("certificate", strings.Join(c.Names, ", "), "until "+c.NotAfter.UTC().Format(time.DateOnly))
	}
	if a.Router != "" {
		row("router", a.Router, a.Rule)
	}
	for _, m := range a.Middlewares {
		row("middleware", m, "")
	}
	if a.Service != "" {
		row("service", a.Service, "")
	}
	for _, s := range a.Servers {
		state := s.State
		if s.Reason != "" {
			state += ": " + s.Reason
		}
		if s.LastFailure != nil {
			state += "; " + s.LastFailure.Since(time.Now())
		}
		row("server", s.URL, state)
	}
	return rows
}

// AnswerLines returns the problems of a request, and the routers that almost match.
func AnswerLines(a shown.Answer) (lines []string) {
	lines = append(lines, a.Problems...)
	switch {
	case a.Router != "" && len(a.Nearest) > 0:
		lines = append(lines, "other routers would match, but cannot be used:")
	case a.Router != "":
	case len(a.Nearest) == 0:
		lines = append(lines, "no router matches: the answer is 404. The entry point has no router that can be used")
	default:
		lines = append(lines, "no router matches: the answer is 404. The nearest routers:")
	}
	for _, n := range a.Nearest {
		lines = append(lines, fmt.Sprintf("  %s: %s", n.Router, strings.Join(n.Why, "; ")))
	}
	return lines
}
