package report

import "fairlead/internal/lab/result"

// group is one column of the table as text: a figure and its ratio.
type group struct {
	title, unit, over string
	cells             []cell
	value, ratio, tol int // widths
}

// cell is one path in a group. A metric without ratios shows the worst round
// instead.
type cell struct {
	value, mark, ratio, margin, note string
	verdict                          verdict
}

// none replaces a figure that has no valid round.
const none = "—"

func (t table) group(c column, paths []string) group {
	g := group{title: c.title, unit: c.scale.label, value: width(c.scale.label)}
	switch {
	case result.Absolute(c.metric):
		g.over = "  worst"
	case t.base != "":
		g.over = " × " + t.base
	}
	for _, p := range paths {
		cell := makeCell(c.at(t.r, p), c.scale)
		g.value = max(g.value, width(cell.value))
		g.ratio = max(g.ratio, width(cell.ratio))
		g.tol = max(g.tol, width(cell.margin))
		g.cells = append(g.cells, cell)
	}
	return g
}

// width returns the group's width, including headings.
func (g group) width() int {
	w := g.value + 2 + g.ratio
	if g.tol > 0 {
		w += 1 + g.tol
	}
	return max(w, width(g.title), g.value+1+width(g.over))
}

func makeCell(s *result.Summary, sc scale) cell {
	switch {
	case s == nil:
		return cell{}
	case s.Rounds == 0:
		return cell{value: none, note: "!"}
	}
	c := cell{value: sc.format(s.Value), mark: " ", verdict: judge(s)}
	if s.Invalid > 0 {
		c.note = "!"
	}
	if result.Absolute(s.Metric) {
		c.ratio = sc.format(s.Worst)
	}
	if s.Baseline == "" {
		return c
	}
	c.ratio = formatRatio(s.Ratio)
	if s.Rounds > 1 {
		c.margin = formatMargin(s)
	}
	if c.verdict == same {
		c.mark = "≈"
	}
	return c
}

// write formats the cell with its group's widths, including the gap.
func (c cell) write(g group, color bool) string {
	value := padLeft(c.value, g.value) + " "
	ratio := padRight(c.mark, 1) + padLeft(c.ratio, g.ratio)
	if g.tol > 0 {
		ratio += " " + padRight(c.margin, g.tol)
	}
	rest := g.width() + gap - width(value) - width(ratio)
	if color {
		ratio = paint(c.verdict, ratio)
	}
	return value + ratio + padRight(c.note, rest)
}

// Styles are the terminal styles (SGR codes) that the tables use.
var Styles = []string{"0", styleSame, styleBetter, styleWorse}

const (
	styleSame   = "2"
	styleBetter = "32"
	styleWorse  = "31"
)

// paint colours text according to the verdict.
func paint(v verdict, text string) string {
	code := map[verdict]string{same: styleSame, better: styleBetter, worse: styleWorse}[v]
	if code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
