package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/lab/result"
)

// Setup is what two entries must have in common so that their ratios can be compared. The
// kernel and the version of Fairlead are not part of it: their effect is what a history
// shows.
type Setup struct {
	Suite string `json:"suite"`
	// Machines describes the one or two machines.
	Machines string `json:"machines"`
	// Duration is the length of a measured window, in seconds.
	Duration float64 `json:"duration"`
	// Family is the address family of the traffic.
	Family result.Family `json:"family"`
	// Netem are the emulated conditions of the wire; "none" without any.
	Netem string `json:"netem"`
}

// SetupOf returns the setup of a report.
func SetupOf(r *result.Report) Setup {
	s := Setup{Suite: r.Suite, Duration: r.Duration, Family: cmp.Or(r.Family, result.IPv4),
		Netem: r.Netem.String()}
	hosts := []result.Host{r.Host}
	if len(r.Machines) > 0 {
		hosts = nil
		for _, m := range r.Machines {
			hosts = append(hosts, m.Host)
		}
	}
	var all []string
	for _, h := range hosts {
		all = append(all, fmt.Sprintf("%d × %s", h.CPUs, h.CPUModel))
	}
	s.Machines = strings.Join(all, ", ")
	return s
}

// Measures reports whether two setups measure the same; their machines may differ.
func (s Setup) Measures(other Setup) bool {
	s.Machines = other.Machines
	return s == other
}

// Group is the entries of one setup, in the order of their times.
type Group struct {
	Setup   Setup
	Entries []Entry
}

// Groups divides entries by their setups, in the order of the last entry of each.
func Groups(entries []Entry) []Group {
	var all []Group
	for _, e := range slices.Backward(entries) {
		s := SetupOf(&e.Report)
		at := slices.IndexFunc(all, func(g Group) bool { return g.Setup == s })
		if at < 0 {
			at = len(all)
			all = append(all, Group{Setup: s})
		}
		all[at].Entries = append(all[at].Entries, e)
	}
	for _, g := range all {
		slices.Reverse(g.Entries)
	}
	return all
}

// Rows returns the rows of a case and metric, one per entry; nil if an entry has none with a
// ratio to the same baseline as the last one.
func (g Group) Rows(c result.Case, m result.Metric) []*result.Summary {
	rows := make([]*result.Summary, len(g.Entries))
	baseline := ""
	for i, e := range slices.Backward(g.Entries) {
		at := slices.IndexFunc(e.Report.Summary, func(s result.Summary) bool { return s.Case == c && s.Metric == m })
		if at < 0 {
			continue
		}
		s := &e.Report.Summary[at]
		if s.Rounds == 0 || s.Baseline == "" || s.Ratio <= 0 {
			continue
		}
		if baseline == "" {
			baseline = s.Baseline
		}
		if s.Baseline == baseline {
			rows[i] = s
		}
	}
	return rows
}

// Past returns the rows of a case and metric in the entries with the report's setup.
func Past(entries []Entry, r *result.Report, c result.Case, m result.Metric) []result.Summary {
	var rows []result.Summary
	for _, g := range Groups(entries) {
		if g.Setup != SetupOf(r) {
			continue
		}
		for _, row := range g.Rows(c, m) {
			if row != nil {
				rows = append(rows, *row)
			}
		}
	}
	return rows
}
