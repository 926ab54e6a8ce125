package similar

import (
	"iter"
	"slices"
	"strings"
)

// Qualified returns a hint for an error about a name that is unknown: the known name that is
// almost the same, or the same but for its provider. Names are NAME@PROVIDER. It returns ""
// if there is none.
func Qualified(name string, known iter.Seq[string]) string {
	bare, _, _ := strings.Cut(name, "@")
	var names []string
	full := map[string]string{}
	for _, k := range slices.Sorted(known) {
		other, _, _ := strings.Cut(k, "@")
		names = append(names, other)
		full[other] = k
	}
	if found, ok := Nearest(bare, names); ok {
		return ": do you mean " + full[found] + "?"
	}
	return ""
}
