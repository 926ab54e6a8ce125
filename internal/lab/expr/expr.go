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
	"errors"
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
func (e *Error) Error() string { return errors.Join(e.Unwrap()...).Error() }

// Unwrap returns the lines of the text, because commands print only joined errors on several lines.
func (e *Error) Unwrap() []error {
	return []error{fmt.Errorf("read condition: column %d: %s", e.Column, e.Cause), errors.New("  " + e.Source),
		errors.New("  " + strings.Repeat(" ", e.Column-1) + "^")}
}

// node is a part of a condition: a condition, whose value is 1 if it is true and else 0, or an operand.
type node interface {
	// figures lists the figures that the part names.
	figures() []*figure
	// value evaluates the part with the values of the figures; why gets one remark
	// per comparison.
	value(values map[*figure]reading, why *[]string) float64
	// explain writes an operand with the values of its figures.
	explain(values map[*figure]reading) string
}

// binary joins two parts with a sign.
type binary struct {
	left, right node
	sign        string
}

func (b binary) figures() []*figure { return append(b.left.figures(), b.right.figures()...) }

// value always evaluates both sides, so that the explanation is complete.
func (b binary) value(values map[*figure]reading, why *[]string) float64 {
	left, right := b.left.value(values, why), b.right.value(values, why)
	switch b.sign {
	case "+":
		return left + right
	case "-":
		return left - right
	case "*", "&&":
		return left * right
	case "||":
		return max(left, right)
	}
	holds := map[string]bool{
		"<": left < right, "<=": left <= right, ">": left > right,
		">=": left >= right, "==": left == right, "!=": left != right,
	}[b.sign]
	is, truth := "is not", 0.0
	if holds {
		is, truth = "is", 1
	}
	*why = append(*why, fmt.Sprintf("%s %s %s %s", b.left.explain(values), is, b.sign, b.right.explain(values)))
	return truth
}

func (b binary) explain(values map[*figure]reading) string {
	return fmt.Sprintf("%s %s %s", b.left.explain(values), b.sign, b.right.explain(values))
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
