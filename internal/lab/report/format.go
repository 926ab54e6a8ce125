package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"fairlead/internal/lab/result"
)

// scale is how the figures of one column are written: divided, and with a fixed
// number of decimals so that the decimal points are aligned.
type scale struct {
	label    string
	divisor  float64
	decimals int
}

// prefix is one possible unit of a metric.
type prefix struct {
	least float64 // used if the column's greatest figure is at least this
	label string
	by    float64
}

// prefixes lists the units of each metric, the greatest first.
func prefixes(m result.Metric) []prefix {
	switch m {
	case result.Throughput, result.Efficiency:
		return []prefix{{1e9, "Gbit/s", 1e9}, {1e6, "Mbit/s", 1e6}, {0, "kbit/s", 1e3}}
	case result.LatencyP50, result.VisitP50, result.FirstByteP50:
		return labelled("p50 ", seconds())
	case result.LatencyMean:
		return labelled("mean ", seconds())
	case result.LatencyP99, result.VisitP99:
		return labelled("p99 ", seconds())
	case result.LatencyP999:
		return labelled("p99.9 ", seconds())
	case result.StartTime, result.RunTime, result.NoticeTime, result.RecoveryTime, result.ReturnTime,
		result.SlowestRequest, result.ChangeTime, result.SlowestProbe, result.FailoverTime, result.Overlap:
		return seconds()
	case result.CPUPerVisit:
		return []prefix{{0, "ms", 1e-3}}
	case result.KneeRate:
		return []prefix{{0, "visits/s", 1}}
	case result.Memory, result.PublishMemory:
		return []prefix{{0, "MB", 1e6}}
	case result.CPUPerOp, result.GatewayPerOp:
		return []prefix{{10e-3, "ms/op", 1e-3}, {0, "µs/op", 1e-6}}
	case result.ConnectionRate, result.TransactionRate, result.RequestRate:
		return []prefix{{0, "/s", 1}}
	case result.PacketRate:
		return []prefix{{0, "kpps", 1e3}}
	case result.CPUPerGB, result.GatewayPerGB:
		return []prefix{{0, "s/GB", 1}}
	case result.FailedRequests, result.FailedVisits, result.FailedConnects:
		return []prefix{{0, "failed", 1}}
	case result.Concurrent:
		return []prefix{{0, "visits", 1}}
	case result.Loss, result.IdleShare:
		return []prefix{{0, "%", 0.01}}
	}
	return []prefix{{0, "", 1}}
}

func seconds() []prefix { return []prefix{{1, "s", 1}, {10e-3, "ms", 1e-3}, {0, "µs", 1e-6}} }

func labelled(label string, all []prefix) []prefix {
	for i := range all {
		all[i].label = label + all[i].label
	}
	return all
}

// scaleFor chooses the unit from the greatest figure, and the decimals so that the
// smallest still has two digits.
func scaleFor(m result.Metric, values []float64) scale {
	whole := []result.Metric{result.Requests, result.FailedRequests, result.FailedVisits, result.FailedConnects,
		result.CompletedConnects, result.Concurrent}
	if slices.Contains(whole, m) {
		return scale{label: prefixes(m)[0].label, divisor: 1}
	}
	return scaleAmong(prefixes(m), values)
}

func scaleAmong(all []prefix, values []float64) scale {
	least, most := math.Inf(1), 0.0
	for _, v := range values {
		most = max(most, v)
		if v > 0 {
			least = min(least, v)
		}
	}
	for _, p := range all {
		if most >= p.least {
			decimals := max(decimalsFor(most/p.by, 3), min(2, decimalsFor(least/p.by, 2)))
			return scale{label: p.label, divisor: p.by, decimals: decimals}
		}
	}
	return scale{divisor: 1}
}

// decimalsFor returns the number of decimals, at most 3, that shows x with the
// given digits.
func decimalsFor(x float64, digits int) int {
	if x <= 0 || math.IsInf(x, 0) {
		return 0
	}
	return min(3, max(0, digits-1-int(math.Floor(math.Log10(x)))))
}

// format writes a figure, in groups of three digits.
func (s scale) format(x float64) string {
	return grouped(fmt.Sprintf("%.*f", s.decimals, x/s.divisor), " ")
}

// grouped inserts sep between groups of three digits before the decimal point.
func grouped(number, sep string) string {
	whole, fraction, found := strings.Cut(number, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + sep + whole[i:]
	}
	if found {
		return whole + "." + fraction
	}
	return whole
}

// ratioDecimals returns the number of decimals that shows a ratio with three
// digits.
func ratioDecimals(ratio float64) int {
	switch {
	case ratio >= 100:
		return 0
	case ratio >= 10:
		return 1
	}
	return 2
}

// formatRatio writes a ratio.
func formatRatio(ratio float64) string {
	return fmt.Sprintf("%.*f", ratioDecimals(ratio), ratio)
}

// noMargin stands for an interval that cannot be given.
const noMargin = "±?"

// formatMargin writes half the width of a ratio's interval, with as many
// characters as the ratio. A very small one has no 0 before the point, but one more
// decimal. In a report of several sessions the interval with the session component
// follows.
func formatMargin(s *result.Summary) string {
	margin := formatHalf(s, s.RatioLow, s.RatioHigh)
	switch s.Sessions {
	case 0:
		return margin
	case 1:
		return margin + " " + noMargin
	}
	return margin + " " + formatHalf(s, s.SessionLow, s.SessionHigh)
}

// formatHalf writes half the width of one interval of a ratio, or that there is none.
func formatHalf(s *result.Summary, low, high float64) string {
	if low <= 0 || high > result.WidestInterval*low {
		return noMargin
	}
	half := (high - low) / 2
	if half < 0.00495 {
		return "±" + strings.TrimPrefix(fmt.Sprintf("%.3f", half), "0")
	}
	return fmt.Sprintf("±%.*f", ratioDecimals(s.Ratio), half)
}

// percent writes a share with one decimal.
func percent(share float64) string {
	return fmt.Sprintf("%.1f %%", share*100)
}

// width counts runes; every rune of the tables is one column wide.
func width(s string) int { return utf8.RuneCountInString(s) }

func padLeft(s string, w int) string {
	return strings.Repeat(" ", max(0, w-width(s))) + s
}

func padRight(s string, w int) string {
	return s + strings.Repeat(" ", max(0, w-width(s)))
}
