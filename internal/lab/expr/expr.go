// Package expr reads and judges the conditions under which a laboratory
// session fails, such as nat.bulk.ratio<0.8. It does no arithmetic, and it
// leaves the exit code to its caller.
//
// # Grammar
//
//	condition  = all { "||" all }
//	all        = single { "&&" single }
//	single     = "(" condition ")" | operand compare operand
//	compare    = "<" | "<=" | ">" | ">=" | "==" | "!="
//	operand    = number | path { "." selector } [ "." field ]
//
// A path comes first. The selectors choose a row of the summary, in any
// order: a workload (its name, an unambiguous beginning of it, or bulk, rr,
// crr, pps for the kinds tcp-bulk, tcp-rr, tcp-crr, udp-pps), a client, a
// metric, a foreign tool. Without a metric the workload's main figure is
// taken, without a workload the one whose main figure the metric is. Without
// a client the condition is judged for every client that was measured, and
// fails if it holds for any. The field is value where none is named. Figures
// are in base units: bit/s, seconds, shares.
package expr

import (
	"fmt"
	"strings"

	"fairlead/internal/lab/result"
)

// Expr is a condition that was parsed.
type Expr struct {
	source string
	root   node
}

// String gives the condition as it was written.
func (e *Expr) String() string { return e.source }

// Error is a fault in the condition; its text shows the place.
type Error struct {
	Source string
	// Column counts characters from 1.
	Column int
	Cause  string
}

// Error shows the condition with a mark under the fault.
func (e *Error) Error() string {
	return fmt.Sprintf("read condition: column %d: %s\n  %s\n  %s^",
		e.Column, e.Cause, e.Source, strings.Repeat(" ", e.Column-1))
}

// node is a part of a condition.
type node interface {
	// operands lists the figures that the part names.
	operands() []*figure
	// eval judges the part with what the figures stand for; why collects
	// one remark per comparison.
	eval(values map[*figure]reading, why *[]string) bool
}

// both and either join two parts.
type both struct{ left, right node }
type either struct{ left, right node }

func (n both) operands() []*figure   { return append(n.left.operands(), n.right.operands()...) }
func (n either) operands() []*figure { return append(n.left.operands(), n.right.operands()...) }

// eval judges both sides always, so that the explanation is whole.
func (n both) eval(values map[*figure]reading, why *[]string) bool {
	left, right := n.left.eval(values, why), n.right.eval(values, why)
	return left && right
}

func (n either) eval(values map[*figure]reading, why *[]string) bool {
	left, right := n.left.eval(values, why), n.right.eval(values, why)
	return left || right
}

// comparison holds two operands against each other.
type comparison struct {
	left, right operand
	sign        string
}

// operand is a number, or a figure of the summary.
type operand struct {
	number float64
	figure *figure
}

// figure names one field of one row: path, selectors, field.
type figure struct {
	text   string
	column int
	path   string
	// selectors stand between path and field, each with its column.
	selectors []word
	field     string
}

// word is a name and where it stands.
type word struct {
	text   string
	column int
}

// reading is what a figure stands for.
type reading struct {
	value float64
	row   result.Summary
}

func (c comparison) operands() []*figure {
	var all []*figure
	for _, o := range []operand{c.left, c.right} {
		if o.figure != nil {
			all = append(all, o.figure)
		}
	}
	return all
}

func (c comparison) eval(values map[*figure]reading, why *[]string) bool {
	left, right := c.left.value(values), c.right.value(values)
	holds := map[string]bool{
		"<": left < right, "<=": left <= right, ">": left > right,
		">=": left >= right, "==": left == right, "!=": left != right,
	}[c.sign]
	is := "is not"
	if holds {
		is = "is"
	}
	*why = append(*why, fmt.Sprintf("%s %s %s %s", c.left.explain(values), is, c.sign, c.right.explain(values)))
	return holds
}

func (o operand) value(values map[*figure]reading) float64 {
	if o.figure == nil {
		return o.number
	}
	return values[o.figure].value
}

// explain names a figure's row in full, so that defaults are no secret.
func (o operand) explain(values map[*figure]reading) string {
	if o.figure == nil {
		return fmt.Sprintf("%g", o.number)
	}
	r := values[o.figure]
	return fmt.Sprintf("%s.%s.%s.%s.%s = %.4g", r.row.Path, r.row.Workload, r.row.Client, r.row.Metric, o.figure.field, r.value)
}
