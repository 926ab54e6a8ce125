package base

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Function is a function of an expression, with its number of arguments. It has a truth
// value or a number.
type Function[S any] struct {
	Args   int
	Truth  func(S) bool
	Number func(S, []float64) float64
}

// token matches the tokens of expressions.
var token = regexp.MustCompile(`^\s*(&&|\|\||[<>=!]=|[<>!(),]|[0-9]*\.?[0-9]+|[A-Za-z]+)`)

// parser parses an expression: comparisons of functions with numbers, &&, ||, ! and
// parentheses. It is the language of Traefik's circuit breakers and retries.
type parser[S any] struct {
	functions map[string]Function[S]
	tokens    []string
}

// ParseExpression returns an expression as a function of a state.
func ParseExpression[S any](text string, functions map[string]Function[S]) (func(S) bool, error) {
	p := &parser[S]{functions: functions}
	const limit = 4096
	if len(text) > limit {
		return nil, fmt.Errorf("read expression: it is longer than %d bytes", limit)
	}
	for rest := text; strings.TrimSpace(rest) != ""; {
		found := token.FindStringSubmatch(rest)
		if found == nil {
			return nil, fmt.Errorf("read expression %q: %q is unknown", text, strings.TrimSpace(rest))
		}
		p.tokens = append(p.tokens, found[1])
		rest = rest[len(found[0]):]
	}
	expression, err := p.or()
	if err == nil && len(p.tokens) > 0 {
		err = fmt.Errorf("%q is unexpected", p.tokens[0])
	}
	if err != nil {
		return nil, fmt.Errorf("read expression %q: %w", text, err)
	}
	return expression, nil
}

// accept takes the next token if it is one of these.
func (p *parser[S]) accept(tokens ...string) (string, bool) {
	if len(p.tokens) == 0 || !slices.Contains(tokens, p.tokens[0]) {
		return "", false
	}
	return p.take(), true
}

// take takes the next token; at the end it is empty.
func (p *parser[S]) take() (next string) {
	if len(p.tokens) > 0 {
		next, p.tokens = p.tokens[0], p.tokens[1:]
	}
	return next
}

func (p *parser[S]) or() (func(S) bool, error) {
	left, err := p.and()
	for err == nil {
		if _, ok := p.accept("||"); !ok {
			break
		}
		before := left
		var right func(S) bool
		right, err = p.and()
		left = func(s S) bool { return before(s) || right(s) }
	}
	return left, err
}

func (p *parser[S]) and() (func(S) bool, error) {
	left, err := p.not()
	for err == nil {
		if _, ok := p.accept("&&"); !ok {
			break
		}
		before := left
		var right func(S) bool
		right, err = p.not()
		left = func(s S) bool { return before(s) && right(s) }
	}
	return left, err
}

func (p *parser[S]) not() (func(S) bool, error) {
	if _, ok := p.accept("!"); ok {
		inner, err := p.not()
		return func(s S) bool { return !inner(s) }, err
	}
	if _, ok := p.accept("("); ok {
		inner, err := p.or()
		if err == nil {
			err = p.expect(")")
		}
		return inner, err
	}
	return p.comparison()
}

func (p *parser[S]) expect(want string) error {
	if _, ok := p.accept(want); !ok {
		return fmt.Errorf("%q is missing", want)
	}
	return nil
}

// comparison parses a function with a truth value, or one that is compared with a number.
func (p *parser[S]) comparison() (func(S) bool, error) {
	name := p.take()
	f, ok := p.functions[name]
	if !ok {
		return nil, fmt.Errorf("function %q is unknown: use %s", name,
			strings.Join(slices.Sorted(maps.Keys(p.functions)), ", "))
	}
	args, err := p.arguments()
	switch {
	case err != nil:
		return nil, err
	case len(args) != f.Args:
		return nil, fmt.Errorf("%s has %d arguments, want %d", name, len(args), f.Args)
	case f.Truth != nil:
		return f.Truth, nil
	}
	operator, ok := p.accept("<", "<=", ">", ">=", "==", "!=")
	if !ok {
		return nil, fmt.Errorf("compare %s with a number, for example %s > 0.5", name, name+"(…)")
	}
	limit, err := strconv.ParseFloat(p.take(), 64)
	if err != nil {
		return nil, fmt.Errorf("%q is not followed by a number", operator)
	}
	compare := comparisons[operator]
	return func(s S) bool { return compare(f.Number(s, args), limit) }, nil
}

var comparisons = map[string]func(a, b float64) bool{
	"<":  func(a, b float64) bool { return a < b },
	"<=": func(a, b float64) bool { return a <= b },
	">":  func(a, b float64) bool { return a > b },
	">=": func(a, b float64) bool { return a >= b },
	"==": func(a, b float64) bool { return a == b },
	"!=": func(a, b float64) bool { return a != b },
}

func (p *parser[S]) arguments() (args []float64, err error) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
	if _, ok := p.accept(")"); ok {
		return nil, nil
	}
	for {
		text := p.take()
		arg, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("argument %q is not a number", text)
		}
		args = append(args, arg)
		if _, ok := p.accept(","); !ok {
			return args, p.expect(")")
		}
	}
}
