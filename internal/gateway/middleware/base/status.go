package base

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// StatusRange has the first and the last status of a range.
type StatusRange [2]int

// ParseStatuses reads statuses and ranges, such as 404 and 500-599.
func ParseStatuses(list []string) (ranges []StatusRange, err error) {
	for item := range strings.SplitSeq(strings.Join(list, ","), ",") {
		first, last, found := strings.Cut(strings.TrimSpace(item), "-")
		if !found {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || from < 100 || to > 999 || from > to {
			return nil, fmt.Errorf("read status %q: want a number or a range such as 500-599", item)
		}
		ranges = append(ranges, StatusRange{from, to})
	}
	return ranges, nil
}

// HasStatus reports whether one of the ranges has the status.
func HasStatus(ranges []StatusRange, status int) bool {
	return slices.ContainsFunc(ranges, func(r StatusRange) bool { return r[0] <= status && status <= r[1] })
}
