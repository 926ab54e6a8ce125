package expr

import (
	"fmt"
	"strings"

	"fairlead/internal/lab/stats"
)

// number is a constant.
type number float64

func (n number) figures() []*figure                           { return nil }
func (n number) value(map[*figure]reading, *[]string) float64 { return float64(n) }
func (n number) explain(map[*figure]reading) string           { return fmt.Sprintf("%g", float64(n)) }

func (f *figure) figures() []*figure                                    { return []*figure{f} }
func (f *figure) value(values map[*figure]reading, _ *[]string) float64 { return values[f].value }

// explain names the figure's row in full, including defaults.
func (f *figure) explain(values map[*figure]reading) string {
	r := values[f]
	return fmt.Sprintf("%s.%s.%s.%s.%s = %.4g", r.row.Path, r.row.Workload, r.row.Client, r.row.Metric, f.field,
		r.value)
}

// statistics are the names that may follow "history.".
var statistics = []string{"median", "last", "low", "high"}

// earlier is a statistic of a figure in earlier sessions.
type earlier struct {
	column    int
	statistic string
	// of is the only figure of the comparison; the parser sets it last.
	of *figure
}

func (e *earlier) figures() []*figure { return nil }

func (e *earlier) value(values map[*figure]reading, _ *[]string) float64 {
	past := values[e.of].past
	_, low, high := stats.Predict(past)
	switch e.statistic {
	case "last":
		return past[len(past)-1]
	case "low":
		return low
	case "high":
		return high
	}
	return stats.Median(past)
}

func (e *earlier) explain(values map[*figure]reading) string {
	return fmt.Sprintf("history.%s = %.4g (of %d)", e.statistic, e.value(values, nil), len(values[e.of].past))
}

// needs returns the number of earlier sessions that the statistic needs.
func (e *earlier) needs() int {
	if e.statistic == "low" || e.statistic == "high" {
		return stats.FewestToPredict
	}
	return 1
}

// bind connects the references to earlier sessions of a comparison with the figure that they are compared with.
func (p *parser) bind(figures []*figure) error {
	for _, e := range p.references {
		if len(figures) != 1 {
			return &Error{p.source, e.column, "history stands for earlier values of the figure that it is compared with: " +
				"want one figure in the comparison, e.g. nat.bulk.ratio < history." + e.statistic}
		}
		e.of = figures[0]
		e.of.past, e.of.fewest = true, max(e.of.fewest, e.needs())
	}
	p.references = nil
	return nil
}

// earlier reads the rest of a reference to earlier sessions.
func (p *parser) earlier() (node, error) {
	e := &earlier{column: p.column()}
	p.rest = strings.TrimPrefix(p.rest, "history.")
	for _, name := range statistics {
		if rest, found := strings.CutPrefix(p.rest, name); found && !beginsName(rest) {
			e.statistic, p.rest = name, rest
			p.references = append(p.references, e)
			return e, nil
		}
	}
	return nil, p.fault("unknown statistic of the history; there are " + strings.Join(statistics, ", ") +
		"; write blanks around + - *")
}
