package traefik

import (
	"fmt"
	"strings"

	"fairlead/internal/similar"
)

// unknown returns the text about a name that is none of the known ones.
func unknown(name string, known []string) string {
	if near := nearest(name, known); near != "" {
		return fmt.Sprintf("the key %q is not known: the nearest one is %q", name, near)
	}
	if len(known) == 0 {
		return fmt.Sprintf("the key %q is not known: leave it out", name)
	}
	return fmt.Sprintf("the key %q is not known: want one of %s", name, strings.Join(known, ", "))
}

// nearest returns the known name that the name is most likely meant to be, or "".
func nearest(name string, known []string) string {
	found, _ := similar.Nearest(name, known)
	return found
}
