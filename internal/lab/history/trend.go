package history

import (
	"math"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"
)

// Verdict is what a history shows about a ratio.
type Verdict string

// The verdicts. Steady means that no change stands out from the scatter.
const (
	Unknown Verdict = ""
	Steady  Verdict = "steady"
	Better  Verdict = "better"
	Worse   Verdict = "worse"
)

// Trend is the course of one ratio.
type Trend struct {
	Verdict Verdict
	// Since is the index of the first row after the change; -1 if there is none.
	Since int
	// Median is that of all ratios. Low and High are the interval in which the last ratio
	// was expected from the ones before it, or from those before the change; both are 0 for
	// fewer than three earlier ones.
	Median, Low, High float64
}

// TrendOf evaluates the rows of a case and metric; nil stands for an entry without a row.
//
// A change is the first entry from which on each ratio is outside the prediction interval of
// those before it, on the same side, and the entry's own interval excludes their mean. The
// scatter of the earlier entries contains the differences between sessions.
func TrendOf(rows []*result.Summary, m result.Metric) Trend {
	var ratios []float64
	var at []int
	for i, row := range rows {
		if row != nil {
			ratios, at = append(ratios, row.Ratio), append(at, i)
		}
	}
	t := Trend{Since: -1, Median: stats.Median(ratios)}
	if len(ratios) <= stats.FewestToPredict {
		return t
	}
	t.Verdict = Steady
	for k := stats.FewestToPredict; k < len(ratios); k++ {
		mean, low, high := stats.Predict(ratios[:k])
		t.Low, t.High = low, high
		if side := sideOf(rows, at[k:], mean, low, high); side != 0 {
			t.Since, t.Verdict = at[k], Worse
			if side > 0 == (result.Units[m].Better == result.Higher) {
				t.Verdict = Better
			}
			return t
		}
	}
	return t
}

// sideOf returns 1 if all rows are above the interval and exclude the mean, -1 if all are
// below, 0 if not.
func sideOf(rows []*result.Summary, at []int, mean, low, high float64) int {
	side := 0
	for _, i := range at {
		own := 0
		switch from, to := rows[i].Interval(); {
		case to == 0: // the row has no interval
			return 0
		case rows[i].Ratio > high && from > mean:
			own = 1
		case rows[i].Ratio < low && to < mean:
			own = -1
		}
		if own == 0 || side != 0 && own != side {
			return 0
		}
		side = own
	}
	return side
}

// Blocks is a line of one character per row, the height of which shows the ratio on a
// logarithmic scale; a row that is missing is a dot. The scale spans at least 10 %, so that
// noise looks small.
func Blocks(rows []*result.Summary) string {
	const heights = "▁▂▃▄▅▆▇█"
	low, high := math.Inf(1), math.Inf(-1)
	for _, row := range rows {
		if row != nil {
			low, high = min(low, math.Log(row.Ratio)), max(high, math.Log(row.Ratio))
		}
	}
	const least = 0.1
	if high-low < least {
		middle := (high + low) / 2
		low, high = middle-least/2, middle+least/2
	}
	text := ""
	for _, row := range rows {
		if row == nil {
			text += "·"
			continue
		}
		n := int((math.Log(row.Ratio) - low) / (high - low) * 8)
		text += string([]rune(heights)[min(max(n, 0), 7)])
	}
	return text
}
