package traefik

import (
	"slices"
	"strings"

	"fairlead/internal/model/gateway"
)

// kept returns the problem of a source whose last good configuration stays in use, for the source
// and for each object of it that the API shows.
func kept(source, text string, c *gateway.Config) []Problem {
	all := []Problem{{Source: source, Text: text, Warning: true}}
	for _, objects := range c.Objects() {
		if kindNamed(objects.Kind()) == nil {
			continue
		}
		from := len(all)
		for name := range objects.All() {
			all = append(all, Problem{Object: objects.Kind() + " " + name, Source: source, Text: text, Warning: true})
		}
		slices.SortFunc(all[from:], func(a, b Problem) int { return strings.Compare(a.Object, b.Object) })
	}
	return all
}
