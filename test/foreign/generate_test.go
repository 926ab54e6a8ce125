package foreign

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"fairlead/test/place"
	"fairlead/test/shell"
)

// Set is a list of shell commands, in order. Each stands for itself.
type Set []string

// Generate returns the commands of a seed.
func Generate(seed uint64) Set {
	g := &generator{rand.New(rand.NewPCG(seed, 28))}
	var s Set
	for _, part := range []func() Set{g.links, g.nft, g.iptables, g.routes, g.settings} {
		s = append(s, part()...)
	}
	return s
}

// Apply runs the commands on a host, and returns those that the host accepted.
func (s Set) Apply(t testing.TB, host place.Place) Set {
	t.Helper()
	var script strings.Builder
	for i, command := range s {
		fmt.Fprintf(&script, "{ %s ; } >/dev/null 2>&1 && echo %d\n", command, i)
	}
	var accepted Set
	for line := range strings.Lines(shell.Run(t, host, script.String()+"true")) {
		var i int
		if _, err := fmt.Sscan(line, &i); err != nil {
			t.Fatal(err)
		}
		accepted = append(accepted, s[i])
	}
	return accepted
}

// generator chooses with the random numbers of a seed.
type generator struct{ *rand.Rand }

func one[T any](g *generator, of []T) T { return of[g.IntN(len(of))] }

// some returns n of the texts, with the numbers in them filled in.
func (g *generator) some(n int, of []string) Set {
	s := make(Set, n)
	for i := range s {
		s[i] = g.fill(one(g, of))
	}
	return s
}

// fill replaces each %d with a small number.
func (g *generator) fill(text string) string {
	for strings.Contains(text, "%d") {
		text = strings.Replace(text, "%d", fmt.Sprint(1+g.IntN(200)), 1)
	}
	return text
}

// quote quotes an argument for the shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
