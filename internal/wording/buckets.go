package wording

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fairlead/internal/plan"
)

// maxListedBuckets is how many buckets of a service are printed one by one.
const maxListedBuckets = 16

// Readable shortens the commands of a plan for readers. A virtual service has
// hundreds of hash buckets in nftables. A comment replaces them: it shows how many
// buckets each real server has.
func Readable(commands string) string {
	lines := strings.SplitAfter(commands, "\n")
	for i, line := range lines {
		lines[i] = buckets(line)
	}
	return strings.Join(lines, "")
}

// buckets returns the line, or a comment if the line changes many buckets.
func buckets(line string) string {
	command, list, ok := strings.Cut(line, " { ")
	list, _, closed := strings.Cut(list, " }")
	words := strings.Fields(command)
	if !ok || !closed || len(words) != 5 || words[1] != "element" || words[3] != plan.ServicesTable ||
		!plan.IsReals(words[4]) {
		return line
	}
	all := strings.Split(list, ", ")
	if len(all) <= maxListedBuckets {
		return line
	}
	to := map[string]int{}
	for _, element := range all {
		if _, real, valued := strings.Cut(element, " : "); valued {
			to[real]++
		}
	}
	short := fmt.Sprintf("# %s: %d buckets", command, len(all))
	for i, real := range slices.Sorted(maps.Keys(to)) {
		short += []string{": ", ", "}[min(i, 1)] + fmt.Sprintf("%d to %s", to[real], real)
	}
	return short + " (-o json lists them)\n"
}
