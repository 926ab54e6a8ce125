package traefik

import (
	"fmt"
	"strings"
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

// maxName is the length from which a name is not compared with others: the time grows
// with its square.
const maxName = 64

// nearest returns the known name with the fewest edits from name, ignoring case, or ""
// if each differs in half of its letters or more. The first of equally near ones wins.
func nearest(name string, known []string) string {
	best, least := "", len(name)
	if len(name) > maxName {
		return ""
	}
	for _, k := range known {
		if edits := distance(strings.ToLower(name), strings.ToLower(k)); edits < least && 2*edits < len(k) {
			best, least = k, edits
		}
	}
	return best
}

// distance returns the number of bytes to insert, delete or replace, or of neighbours
// to swap, that turn a into b (the optimal string alignment distance).
func distance(a, b string) int {
	var before, last []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
