package tree

import (
	"fmt"
	"strings"

	"fairlead/internal/similar"
)

// Unknown returns the text about a name that is none of the known ones.
func Unknown(name string, known []string) string {
	if near, _ := similar.Nearest(name, known); near != "" {
		return fmt.Sprintf("the key %q is not known: the nearest one is %q", name, near)
	}
	if len(known) == 0 {
		return fmt.Sprintf("the key %q is not known: leave it out", name)
	}
	return fmt.Sprintf("the key %q is not known: want one of %s", name, strings.Join(known, ", "))
}
