// Package similar finds the known name that a misspelled one most likely means.
package similar

import "strings"

// MaxLength is the length from which Nearest compares a name with no other: the time grows
// with the square.
const MaxLength = 64

// Nearest returns the known name with the fewest edits from the name, ignoring case,
// the first one if several have as few. Returns false if each needs more than a third
// of the name's letters, and at least more than one.
func Nearest(name string, known []string) (string, bool) {
	name = strings.ToLower(name)
	best, found := max(1, len(name)/3)+1, ""
	if len(name) > MaxLength {
		return "", false
	}
	for _, k := range known {
		if len(k) > len(name)+best || len(name) > len(k)+best {
			continue
		}
		if d := Distance(name, strings.ToLower(k)); d < best {
			best, found = d, k
		}
	}
	return found, found != ""
}

// Distance returns the number of edits from a to b: inserted, deleted and replaced
// bytes, and swapped neighbours (Damerau and Levenshtein's optimal string alignment).
func Distance(a, b string) int {
	before, previous, current := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i
		for j := 1; j <= len(b); j++ {
			replace := previous[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			current[j] = min(replace, previous[j]+1, current[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				current[j] = min(current[j], before[j-2]+1)
			}
		}
		before, previous, current = previous, current, before
	}
	return previous[len(b)]
}
