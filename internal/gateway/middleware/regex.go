package middleware

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"fairlead/internal/expression"
)

// compileRegex compiles an expression of a user.
func compileRegex(text string) (*regexp.Regexp, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("the regular expression is missing")
	}
	compiled, err := expression.Compile(strings.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("read regular expression: %w", err)
	}
	return compiled, nil
}

// reference matches a name in a replacement.
var reference = regexp.MustCompile(`\$(\$|\{\w+\}|\w+)`)

// compileReplacement compiles an expression and checks that its replacement uses only
// groups that the expression has. Go replaces others by nothing: $1x means group "1x".
func compileReplacement(text, replacement string) (*regexp.Regexp, string, error) {
	expression, err := compileRegex(text)
	if err != nil {
		return nil, "", err
	}
	groups := map[string]bool{"$": true}
	for i, name := range expression.SubexpNames() {
		groups[fmt.Sprint(i)] = true
		groups[name] = true
	}
	for _, found := range reference.FindAllStringSubmatch(replacement, -1) {
		if name := strings.Trim(found[1], "{}"); !groups[name] {
			return nil, "", fmt.Errorf("use replacement %q: the expression has no group %q: write ${1} before letters",
				replacement, name)
		}
	}
	return expression, strings.TrimSpace(replacement), nil
}
