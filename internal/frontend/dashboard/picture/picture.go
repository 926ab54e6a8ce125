// Package picture draws an explained flow as SVG: one lane per network namespace, from left to right in the order in
// which the packet enters them, and one box per hop, from top to bottom, with the rule that decides there.
package picture

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"fairlead/internal/escape"
	"fairlead/internal/explain/flow"
)

// The sizes, in the units of the picture.
const (
	laneWidth = 340
	gap       = 14
	boxWidth  = laneWidth - 2*gap
	lineStep  = 17
	topHeight = 34
	// columns is how many characters fit into a line of a box, and lines how many lines of a text are shown.
	columns = 38
	lines   = 4
)

// box is a hop in the picture.
type box struct {
	lane, y, height int
	head            string
	what, by        []string
	class           string
}

// drawing is a picture that is being laid out.
type drawing struct {
	lanes []string
	boxes []box
	y     int
}

// Of returns the picture of an explanation.
func Of(e flow.Explanation) template.HTML {
	d := drawing{y: topHeight + gap}
	for i, h := range e.Hops {
		by := h.By
		if by == "" {
			by = h.Program
		}
		class := "hop"
		if i == len(e.Hops)-1 && e.Further == nil {
			class = "hop " + end(e.Outcome)
		}
		d.add(h.Where, fmt.Sprint(h.Number), h.Link, seen(h), by, class)
	}
	if e.Further != nil {
		for i, s := range e.Further.Steps {
			d.add(e.Further.Node+": "+s.Where, fmt.Sprint(len(e.Hops)+i+1), s.Link, s.What, s.By, "hop")
		}
	}
	return d.svg(e)
}

// end returns the class of the last hop.
func end(o flow.Outcome) string {
	if o == flow.Delivered || o == flow.Leaves {
		return "end-ok"
	}
	return "end-bad"
}

// seen returns what happens at a hop, and whether a probe has seen it.
func seen(h flow.Hop) string {
	if h.Seen != "" {
		return h.What + " [" + h.Seen + "]"
	}
	return h.What
}

// add adds a hop below the others.
func (d *drawing) add(where, number, link, what, by, class string) {
	lane := slices.Index(d.lanes, where)
	if lane < 0 {
		lane = len(d.lanes)
		d.lanes = append(d.lanes, where)
	}
	b := box{lane: lane, y: d.y, head: strings.TrimSpace(number + "  " + link), what: wrapped(what), by: wrapped(by),
		class: class}
	b.height = lineStep*(1+len(b.what)+len(b.by)) + gap
	d.y += b.height + 2*gap
	d.boxes = append(d.boxes, b)
}

// wrapped divides a text into the lines of a box.
func wrapped(text string) (all []string) {
	rest := []rune(escape.Line(strings.TrimSpace(text)))
	for len(rest) > 0 {
		if len(all) == lines-1 && len(rest) > columns {
			return append(all, string(rest[:columns-1])+"…")
		}
		n := min(columns, len(rest))
		if n < len(rest) {
			if at := strings.LastIndexByte(string(rest[:n]), ' '); at > 0 {
				n = len([]rune(string(rest[:n])[:at]))
			}
		}
		all = append(all, string(rest[:n]))
		rest = []rune(strings.TrimLeft(string(rest[n:]), " "))
	}
	return all
}

// svg writes the picture.
func (d *drawing) svg(e flow.Explanation) template.HTML {
	var b strings.Builder
	width, height := max(1, len(d.lanes))*laneWidth, d.y
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" role="img" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d">`,
		width, height)
	fmt.Fprintf(&b, "\n<title>%s</title>\n", text("The path of the flow "+e.Flow+": "+e.Verdict))
	for i, lane := range d.lanes {
		x := i * laneWidth
		fmt.Fprintf(&b, `<rect class="lane" x="%d" y="1" width="%d" height="%d"/>`, x+3, laneWidth-6, height-2)
		fmt.Fprintf(&b, "<text class=\"title\" x=\"%d\" y=\"22\">%s</text>\n", x+gap, text(short(lane)))
	}
	for i := range d.boxes {
		if i > 0 {
			d.way(&b, d.boxes[i-1], d.boxes[i])
		}
	}
	for _, one := range d.boxes {
		one.write(&b)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

// short returns a name that fits above its lane.
func short(name string) string {
	if r := []rune(escape.Line(name)); len(r) > columns {
		return string(r[:columns-1]) + "…"
	}
	return name
}

// text returns a text as XML.
func text(s string) string { return template.HTMLEscapeString(escape.Line(s)) }

// way draws the arrow between two hops.
func (d *drawing) way(b *strings.Builder, from, to box) {
	x1, x2 := from.lane*laneWidth+laneWidth/2, to.lane*laneWidth+laneWidth/2
	y1, y2 := from.y+from.height, to.y
	fmt.Fprintf(b, `<path class="way" d="M%d %dV%dH%dV%d"/>`, x1, y1, y1+gap, x2, y2-6)
	fmt.Fprintf(b, "<path class=\"tip\" d=\"M%d %dl-5 -8h10z\"/>\n", x2, y2)
}

// write draws a box with its lines.
func (o box) write(b *strings.Builder) {
	x, y := o.lane*laneWidth+gap, o.y
	fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="5"/>`, o.class, x, y, boxWidth, o.height)
	line := func(class, s string) {
		y += lineStep
		fmt.Fprintf(b, `<text class="%s" x="%d" y="%d">%s</text>`, class, x+8, y, text(s))
	}
	line("title", short(o.head))
	for _, s := range o.what {
		line("what", s)
	}
	for _, s := range o.by {
		line("soft", s)
	}
	b.WriteString("\n")
}
