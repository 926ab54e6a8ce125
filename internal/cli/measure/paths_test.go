package measure

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"fairlead/internal/paths"
	"fairlead/internal/plan"
	"fairlead/internal/promise"
)

// TestPathsFitTheTerminal: no line is wider than the terminal, and every path has an answer
// to each question.
func TestPathsFitTheTerminal(t *testing.T) {
	table := paths.Table(plan.Facts{})
	alone, published := split(table)
	for _, width := range []int{0, 72, 80, 120, 300} {
		var out bytes.Buffer
		if err := printPaths(&out, table, width); err != nil {
			t.Fatal(err)
		}
		limit := width
		if limit == 0 {
			limit = terminalWidth
		}
		answers := 0
		for line := range strings.Lines(out.String()) {
			line = strings.TrimSuffix(line, "\n")
			if utf8.RuneCountInString(line) > limit {
				t.Errorf("width %d: a line of %d: %s", width, utf8.RuneCountInString(line), line)
			}
			for _, word := range strings.Fields(line) {
				if word == "yes" || word == "no" {
					answers++
				}
			}
		}
		if want := len(alone)*len(promise.Driver()) + len(published)*len(promise.Publish()); answers != want {
			t.Errorf("width %d: %d answers, want %d:\n%s", width, answers, want, out.String())
		}
	}
}
