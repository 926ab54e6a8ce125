// Package expr parses and evaluates the conditions under which a laboratory
// session fails, such as nat.bulk.ratio<0.8. It does no arithmetic, and leaves the
// exit code to its caller.
//
// # Grammar
//
//	condition  = all { "||" all }
//	all        = single { "&&" single }
//	single     = "(" condition ")" | operand compare operand
//	compare    = "<" | "<=" | ">" | ">=" | "==" | "!="
//	operand    = number | path { "." selector } [ "." field ]
//
// A path comes first. The selectors choose a row of the summary, in any order: a
// workload (its name, an unambiguous prefix of it, or bulk, rr, crr, pps for the
// kinds tcp-bulk, tcp-rr, tcp-crr, udp-pps), a client, a metric, an external tool.
// Without a metric, the workload's main metric is used; without a workload, the
// one whose main metric this is. Without a client, the condition is evaluated for
// every client that was measured, and is true if it is true for any. Without a
// field, value is used. Figures are in base units: bit/s, seconds, shares.
package expr

import (
	"fmt"
	"strings"

	"fairlead/internal/lab/result"
)

// Expr is a parsed condition.
type Expr struct {
	source string
	root   node
}

// String returns the condition as it was written.
func (e *Expr) String() string { return e.source }

// Error is a syntax error or a wrong name in the condition.
type Error struct {
	Source string
	// Column counts characters from 1.
	Column int
	Cause  string
}

// Error returns the cause, and the condition with a mark under the column.
func (e *Error) Error() string {
	return fmt.Sprintf("read condition: column %d: %s\n  %s\n  %s^",
		e.Column, e.Cause, e.Source, strings.Repeat(" ", e.Column-1))
}

// node is a part of a condition.
type node interface {
	// operands lists the figures that the part names.
	operands() []*figure
	// eval evaluates the part with the values of the figures; why gets one remark
	// per comparison.
	eval(values map[*figure]reading, why *[]string) bool
}

// both and either join two parts.
type both struct{ left, right node }
type either struct{ left, right node }

func (n both) operands() []*figure   { return append(n.left.operands(), n.right.operands()...) }
func (n either) operands() []*figure { return append(n.left.operands(), n.right.operands()...) }

// eval always evaluates both sides, so that the explanation is complete.
func (n both) eval(values map[*figure]reading, why *[]string) bool {
	left, right := n.left.eval(values, why), n.right.eval(values, why)
	return left && right
}

func (n either) eval(values map[*figure]reading, why *[]string) bool {
	left, right := n.left.eval(values, why), n.right.eval(values, why)
	return left || right
}

// comparison compares two operands.
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
	// selectors are between path and field, each with its column.
	selectors []word
	field     string
}

// word is a name and its column.
type word struct {
	text   string
	column int
}

// reading is the value of a figure.
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

// explain names a figure's row in full, including defaults.
func (o operand) explain(values map[*figure]reading) string {
	if o.figure == nil {
		return fmt.Sprintf("%g", o.number)
	}
	r := values[o.figure]
	return fmt.Sprintf("%s.%s.%s.%s.%s = %.4g", r.row.Path, r.row.Workload, r.row.Client, r.row.Metric, o.figure.field,
		r.value)
}
