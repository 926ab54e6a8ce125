package middleware

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// statusRange has the first and the last status of a range.
type statusRange [2]int

// parseStatuses reads statuses and ranges, such as 404 and 500-599.
func parseStatuses(list []string) (ranges []statusRange, err error) {
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
		ranges = append(ranges, statusRange{from, to})
	}
	return ranges, nil
}

func hasStatus(ranges []statusRange, status int) bool {
	return slices.ContainsFunc(ranges, func(r statusRange) bool { return r[0] <= status && status <= r[1] })
}
