package traefik

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
)

// constraint reports whether a container with these labels is in the configuration.
type constraint func(labels map[string]string) bool

// parseConstraints parses an expression of Label(`NAME`, `VALUE`) and
// LabelRegex(`NAME`, `REGEXP`) with &&, || and !. Its grammar is that of Go, as in
// Traefik. An empty expression accepts all containers.
func parseConstraints(text string) (constraint, error) {
	if text == "" {
		return func(map[string]string) bool { return true }, nil
	}
	expr, err := parser.ParseExpr(text)
	if err != nil {
		return nil, fmt.Errorf("parse constraints %q: %w", text, err)
	}
	c, err := constraintOf(expr)
	if err != nil {
		return nil, fmt.Errorf("parse constraints %q: %w", text, err)
	}
	return c, nil
}

func constraintOf(expr ast.Expr) (constraint, error) {
	switch expr := expr.(type) {
	case *ast.ParenExpr:
		return constraintOf(expr.X)
	case *ast.UnaryExpr:
		c, err := constraintOf(expr.X)
		if err != nil || expr.Op != token.NOT {
			break
		}
		return func(labels map[string]string) bool { return !c(labels) }, nil
	case *ast.BinaryExpr:
		return both(expr)
	case *ast.CallExpr:
		return call(expr)
	}
	return nil, fmt.Errorf("position %d: with &&, || and ! between them, want Label(`NAME`, `VALUE`) or "+
		"LabelRegex(`NAME`, `REGEXP`)", expr.Pos())
}

func both(expr *ast.BinaryExpr) (constraint, error) {
	a, err := constraintOf(expr.X)
	if err != nil {
		return nil, err
	}
	b, err := constraintOf(expr.Y)
	if err != nil {
		return nil, err
	}
	switch expr.Op {
	case token.LAND:
		return func(labels map[string]string) bool { return a(labels) && b(labels) }, nil
	case token.LOR:
		return func(labels map[string]string) bool { return a(labels) || b(labels) }, nil
	}
	return nil, fmt.Errorf("position %d: the operator %s is not known: want && or ||", expr.OpPos, expr.Op)
}

func call(expr *ast.CallExpr) (constraint, error) {
	var name string
	if id, ok := expr.Fun.(*ast.Ident); ok {
		name = id.Name
	}
	if name != "Label" && name != "LabelRegex" {
		return nil, fmt.Errorf("position %d: the function is not known: want Label or LabelRegex", expr.Pos())
	}
	if len(expr.Args) != 2 {
		return nil, fmt.Errorf("position %d: %s has %d arguments: want the label's name and a value", expr.Pos(), name,
			len(expr.Args))
	}
	var args [2]string
	for i, arg := range expr.Args {
		lit, ok := arg.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return nil, fmt.Errorf("position %d: want a text in backticks or double quotes", arg.Pos())
		}
		var err error
		if args[i], err = strconv.Unquote(lit.Value); err != nil {
			return nil, fmt.Errorf("position %d: parse %s: %w", arg.Pos(), lit.Value, err)
		}
	}
	if name == "Label" {
		return func(labels map[string]string) bool { return labels[args[0]] == args[1] }, nil
	}
	re, err := regexp.Compile(args[1])
	if err != nil {
		return nil, fmt.Errorf("position %d: %w", expr.Pos(), err)
	}
	return func(labels map[string]string) bool { return re.MatchString(labels[args[0]]) }, nil
}
