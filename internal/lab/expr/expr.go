// Package expr parses and evaluates the conditions under which a laboratory
// session fails, such as nat.bulk.ratio < 0.8 or nat.bulk.ratio < history.median - 0.05.
// It leaves the exit code to its caller.
//
// # Grammar
//
//	condition  = all { "||" all }
//	all        = single { "&&" single }
//	single     = "(" condition ")" | operand compare operand
//	compare    = "<" | "<=" | ">" | ">=" | "==" | "!="
//	operand    = product { ( "+" | "-" ) product }
//	product    = value { "*" value }
//	value      = number | "history." statistic | path { "." selector } [ "." field ]
//	statistic  = "median" | "last" | "low" | "high"
//
// A path comes first. The selectors choose a row of the summary, in any order: a
// workload (its name, an unambiguous prefix of it, or bulk, rr, crr, pps for the
// kinds tcp-bulk, tcp-rr, tcp-crr, udp-pps), a client, a metric, an external tool.
// Without a metric, the workload's main metric is used; without a workload, the
// one whose main metric this is. Without a client, the condition is evaluated for
// every client that was measured, and is true if it is true for any. Without a
// field, value is used. Figures are in base units: bit/s, seconds, shares.
//
// history stands for the same figure in earlier sessions: the only figure of the same
// comparison. low and high are the interval in which it is expected.
package expr

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/lab/result"
)

// Expr is a parsed condition.
type Expr struct {
	source string
	root   node
	past   Past
}

// Past returns the rows of a case and metric in earlier sessions, the oldest first.
type Past func(result.Case, result.Metric) []result.Summary

// UsesHistory reports whether the condition refers to earlier sessions.
func (e *Expr) UsesHistory() bool {
	return slices.ContainsFunc(e.root.figures(), func(f *figure) bool { return f.past })
}

// SetPast sets the earlier sessions. A condition that refers to them needs it before Check
// and Eval.
func (e *Expr) SetPast(past Past) { e.past = past }

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
	// figures lists the figures that the part names.
	figures() []*figure
	// eval evaluates the part with the values of the figures; why gets one remark
	// per comparison.
	eval(values map[*figure]reading, why *[]string) bool
}

// both and either join two parts.
type both struct{ left, right node }
type either struct{ left, right node }

func (n both) figures() []*figure   { return append(n.left.figures(), n.right.figures()...) }
func (n either) figures() []*figure { return append(n.left.figures(), n.right.figures()...) }

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

// figure names one field of one row: path, selectors, field.
type figure struct {
	text   string
	column int
	path   string
	// selectors are between path and field, each with its column.
	selectors []word
	field     string
	// past is true if the condition compares the figure with its history.
	past bool
	// fewest is the number of earlier sessions that this needs.
	fewest int
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
	// past are the values in earlier sessions, if the condition refers to them.
	past []float64
}

func (c comparison) figures() []*figure { return append(c.left.figures(), c.right.figures()...) }

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
