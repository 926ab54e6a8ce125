package rule

import (
	"fmt"
	"strings"
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

// list joins the names for a message.
func list(names []string) string { return strings.Join(names, ", ") }
