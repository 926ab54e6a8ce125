package rule

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Error is a fault of a rule.
type Error struct {
	// Column of the fault, in characters from 1.
	Column int
	// Problem says what is wrong and what to write instead.
	Problem string
	// otherSyntax says that the rule may be valid in another syntax.
	otherSyntax bool
	// unknown says that the syntax has no such matcher.
	unknown bool
}

func (e *Error) Error() string { return fmt.Sprintf("parse rule: column %d: %s", e.Column, e.Problem) }

// argumentError is a fault of one argument of a matcher.
type argumentError struct {
	index   int
	problem string
}

func (e *argumentError) Error() string { return e.problem }

func badArgument(index int, format string, args ...any) error {
	return &argumentError{index, fmt.Sprintf(format, args...)}
}

func (p *parser) fail(offset int, format string, args ...any) error {
	return &Error{Column: utf8.RuneCountInString(p.text[:offset]) + 1, Problem: fmt.Sprintf(format, args...)}
}

// failOther returns an error of a rule that may be valid in v2.
func (p *parser) failOther(offset int, unknown bool, format string, args ...any) error {
	return &Error{Column: utf8.RuneCountInString(p.text[:offset]) + 1, Problem: fmt.Sprintf(format, args...),
		otherSyntax: true, unknown: unknown}
}

// list joins the names for a message.
func list(names []string) string { return strings.Join(names, ", ") }
