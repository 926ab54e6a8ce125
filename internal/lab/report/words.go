package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fairlead/internal/lab/result"
)

// workloadTitle returns a readable title of a workload, with the variant after the
// kind (block, spin, down …).
func workloadTitle(workload string) string {
	kind := result.Kind(workload)
	title := result.KindTitle(kind)
	if title == "" {
		return workload
	}
	return title + strings.ReplaceAll(strings.TrimPrefix(workload, kind), "-", " ")
}

// compareWorkloads orders workloads by kind, then by name.
func compareWorkloads(a, b string) int {
	return cmp.Or(cmp.Compare(result.KindRank(a), result.KindRank(b)), cmp.Compare(a, b))
}

// clientTitles describe where a client is.
var clientTitles = map[result.Client]string{
	result.Remote:       "client across the wire",
	result.Local:        "client on the same host",
	result.Peer:         "client in another sandbox",
	result.OtherNetwork: "client in a sandbox of another network",
	result.Outbound:     "sandbox that connects to a host",
}

func clientTitle(c result.Client) string { return cmp.Or(clientTitles[c], "client "+string(c)) }

// metricTitle returns a readable name of a metric.
func metricTitle(m result.Metric) string { return cmp.Or(result.Units[m].Title, string(m)) }

// plural formats a number with a noun whose plural ends in s.
func plural(n int, noun string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// mostFirst returns the keys with the greatest numbers first.
func mostFirst[N cmp.Ordered](count map[string]N) []string {
	return slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
}
