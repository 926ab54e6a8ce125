package command

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Suggest returns the candidates that are similar to the name, or all candidates
// if none is similar.
func Suggest(name string, candidates []string) string {
	if near := Nearest(name, candidates); len(near) > 0 {
		return "did you mean " + strings.Join(near, " or ") + "?"
	}
	return "want one of " + strings.Join(candidates, ", ")
}

// Nearest returns the candidates that cobra would suggest for a misspelled
// command: those with an edit distance of at most two, and those that begin with
// the name.
func Nearest(name string, candidates []string) []string {
	c := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, candidate := range candidates {
		c.AddCommand(&cobra.Command{Use: candidate, Run: func(*cobra.Command, []string) {}})
	}
	near := c.SuggestionsFor(name)
	slices.Sort(near)
	return slices.Compact(near)
}
