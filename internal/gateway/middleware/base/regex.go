package base

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"fairlead/internal/expression"
)

// CompileRegex compiles an expression of a user.
func CompileRegex(text string) (*regexp.Regexp, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("the regular expression is missing")
	}
	compiled, err := expression.Compile(strings.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("read regular expression: %w", err)
	}
	return compiled, nil
}
