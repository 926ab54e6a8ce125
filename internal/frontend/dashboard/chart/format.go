package chart

import (
	"fmt"
	"math"
	"strconv"
)

// scaled writes a value with the greatest unit that leaves at least 1, and at most three digits.
func scaled(v, step float64, units []string) string {
	unit := 0
	for math.Abs(v) >= step && unit < len(units)-1 {
		v, unit = v/step, unit+1
	}
	digits := 0
	switch {
	case v == 0:
	case math.Abs(v) < 10:
		digits = 2
	case math.Abs(v) < 100:
		digits = 1
	}
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if digits > 0 {
		text = trimZeros(text)
	}
	if text == "0" && v != 0 {
		text = "< 0.01"
	}
	return text + units[unit]
}

// trimZeros removes the zeros at the end of a fraction.
func trimZeros(text string) string {
	for text[len(text)-1] == '0' {
		text = text[:len(text)-1]
	}
	if text[len(text)-1] == '.' {
		text = text[:len(text)-1]
	}
	return text
}

func number(v float64) string { return scaled(v, 1000, []string{"", " k", " M", " G", " T"}) }

func bytes(v float64) string {
	return scaled(v, 1024, []string{" B", " KiB", " MiB", " GiB", " TiB"})
}

func percent(v float64) string { return scaled(100*v, math.Inf(1), []string{" %"}) }

// duration writes seconds.
func duration(v float64) string {
	if v < 1 {
		return scaled(1000*v, math.Inf(1), []string{" ms"})
	}
	return scaled(v, math.Inf(1), []string{" s"})
}

// ceiling returns the least of 1, 2, 5 times a power of base that is not less than v. Powers of two keep the marks of
// bytes round.
func ceiling(v float64, binary bool) float64 {
	if v <= 0 {
		return 1
	}
	if binary {
		return math.Exp2(math.Ceil(math.Log2(v)))
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v {
			return m * power
		}
	}
	return 10 * power
}

// coordinate writes a length with one digit after the point.
func coordinate(v float64) string {
	text := strconv.FormatFloat(math.Round(10*v)/10, 'f', -1, 64)
	if text == "-0" {
		return "0"
	}
	return text
}

func minutes(seconds float64) string {
	switch n := math.Round(seconds / 60); n {
	case 0:
		return "less than a minute"
	case 1:
		return "1 minute"
	default:
		return fmt.Sprintf("%.0f minutes", n)
	}
}
