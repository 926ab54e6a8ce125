package chart

import (
	"fmt"
	"html"
	"math"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/frontend/dashboard/history"
)

// The places in a picture. At a width of 360 pixels, one unit is about one pixel.
const (
	width, height = 360, 150
	left, right   = 58, 352
	top, bottom   = 24, 124
)

// span is the time that charts show, in seconds.
const span = 3600

// drawing is a chart with its figures.
type drawing struct {
	kind
	ages   []float64
	series map[string][]api.Figure
}

// svg returns the picture.
func (d *drawing) svg() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %d %d" role="img" aria-labelledby="%s-title %[3]s-text">`, width,
		height,
		"chart-"+d.id)
	fmt.Fprintf(&b, `<title id="chart-%s-title">%s, %s</title>`, d.id, html.EscapeString(d.title),
		html.EscapeString(d.unit))
	fmt.Fprintf(&b, `<desc id="chart-%s-text">%s</desc>`, d.id, html.EscapeString(d.text()))
	most := d.scale()
	d.axes(&b, most)
	d.legend(&b)
	for i, l := range d.lines {
		if path := d.path(l.key, most); path != "" {
			fmt.Fprintf(&b, `<path class="chart-line-%d" d="%s"/>`, i+1, path)
		}
	}
	b.WriteString("</svg>")
	return b.String()
}

// scale returns the value at the upper end.
func (d *drawing) scale() float64 {
	if d.most > 0 {
		return d.most
	}
	highest := 0.0
	for _, l := range d.lines {
		if s := d.summary(l.key, span, 0); s.known > 0 {
			highest = max(highest, s.highest)
		}
	}
	return ceiling(highest, d.format(1024) == "1 KiB")
}

// axes draws the scale of the values at the left side, and that of the time below.
func (d *drawing) axes(b *strings.Builder, most float64) {
	for i := range 3 {
		v := most * float64(i) / 2
		y := place(v, most)
		fmt.Fprintf(b, `<path class="chart-grid" d="M%d %sH%d"/><text class="chart-label" x="%d" y="%s" `+
			`text-anchor="end">%s</text>`, left, coordinate(y), right, left-5, coordinate(y+4),
			html.EscapeString(d.format(v)))
	}
	fmt.Fprintf(b, `<path class="chart-axis" d="M%d %dH%d"/>`, left, bottom, right)
	for _, at := range []struct {
		ago          int
		text, anchor string
	}{{60, "60 min ago", "start"}, {30, "30 min", "middle"}, {0, "now", "end"}} {
		fmt.Fprintf(b, `<text class="chart-label" x="%s" y="%d" text-anchor="%s">%s</text>`,
			coordinate(when(float64(60*at.ago))), bottom+16, at.anchor, at.text)
	}
}

// legend names the lines above the picture, with their present values.
func (d *drawing) legend(b *strings.Builder) {
	x := left
	if len(d.lines) > 1 {
		x = 4
	}
	for i, l := range d.lines {
		text := strings.TrimSpace(l.label + " " + d.latest(l.key))
		if len(d.lines) == 1 {
			text = "now " + d.latest(l.key)
		} else {
			fmt.Fprintf(b, `<path class="chart-line-%d" d="M%d 9h14"/>`, i+1, x)
			x += 18
		}
		fmt.Fprintf(b, `<text class="chart-label" x="%d" y="13">%s</text>`, x, html.EscapeString(text))
		x += 6*len(text) + 12
	}
}

// latest returns the newest value of a series in words.
func (d *drawing) latest(key string) string {
	s := d.series[key]
	if n := len(s); n > 0 && s[n-1].Known() && d.ages[n-1] <= history.Gap.Seconds() {
		return d.format(float64(s[n-1]))
	}
	return "unknown"
}

// path connects the known values of a series. It leaves out the time between two samples that are too far apart.
func (d *drawing) path(key string, most float64) string {
	var b strings.Builder
	var x, y float64 // the place of the pen, as written
	open := false
	for i, v := range d.series[key] {
		if !v.Known() || d.ages[i] > span {
			open = false
			continue
		}
		if i > 0 && d.ages[i-1]-d.ages[i] > history.Gap.Seconds() {
			open = false
		}
		toX, toY := math.Round(10*when(d.ages[i]))/10, math.Round(10*place(float64(v), most))/10
		if open {
			fmt.Fprintf(&b, "l%s %s", coordinate(toX-x), coordinate(toY-y))
		} else {
			fmt.Fprintf(&b, "M%s %sh0", coordinate(toX), coordinate(toY)) // a single value is a dot
		}
		x, y, open = toX, toY, true
	}
	return b.String()
}

// when returns the horizontal place of an age in seconds.
func when(age float64) float64 { return right - (right-left)*age/span }

// place returns the vertical place of a value.
func place(v, most float64) float64 { return bottom - (bottom-top)*min(v/most, 1) }

// text describes the picture in words.
func (d *drawing) text() string {
	var parts []string
	for _, l := range d.lines {
		s := d.summary(l.key, span, 0)
		text := fmt.Sprintf("now %s, mean %s, highest %s %s ago", d.latest(l.key), s.text(s.mean, d.format),
			s.text(s.highest, d.format), minutes(s.highestAge))
		if l.label != "" {
			text = l.label + ": " + text
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ") + "."
}

// summary is what is known of a series in a part of the hour.
type summary struct {
	known                     int
	mean, highest, highestAge float64
}

// summary looks at the samples that are younger than an age, and at least as old as another one, in seconds.
func (d *drawing) summary(key string, from, to float64) (s summary) {
	for i, v := range d.series[key] {
		if age := d.ages[i]; !v.Known() || age > from || age < to || age == from && from < span {
			continue
		}
		if s.known++; s.known == 1 || float64(v) > s.highest {
			s.highest, s.highestAge = float64(v), d.ages[i]
		}
		s.mean += (float64(v) - s.mean) / float64(s.known)
	}
	return s
}

// text writes a value of the summary.
func (s summary) text(v float64, format func(float64) string) string {
	if s.known == 0 {
		return "no data"
	}
	return format(v)
}
