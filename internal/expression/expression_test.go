package expression_test

import (
	"regexp/syntax"
	"strings"
	"testing"

	"fairlead/internal/expression"
)

// TestSize compares estimates with the programs of expressions.
func TestSize(t *testing.T) {
	for _, text := range []string{"^shop$", "^[a-z0-9-]+\\.example\\.com$", "(a|b|c){1,500}", "((ab?){3,9}c*){2,7}",
		"(?i)straße",
		"(a|bc|def)+?", "", "x{0}", "(?:a{10}){20,}"} {
		size, err := expression.Size(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		parsed, err := syntax.Parse(text, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		program, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if n := len(program.Inst); size < n/2-5 || size > 4*n+5 {
			t.Errorf("%s: about %d instructions, the program has %d", text, size, n)
		}
	}
}

// TestLimits compiles expressions at the limits and above them.
func TestLimits(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat("a", expression.MaxLength):      "",
		strings.Repeat("a", expression.MaxLength+1):    "has 8193 bytes: want at most 8192",
		"(" + strings.Repeat("a", 24) + "){0,370}":     "",
		"(" + strings.Repeat("a", 24) + "){0,500}":     "instructions: want at most 10000",
		strings.Repeat("[[:word:][:^ascii:]]", 100):    "",
		strings.Repeat(`\pL`, expression.MaxClasses):   "",
		strings.Repeat(`\pL`, expression.MaxClasses+1): "large character classes",
		"(?i)" + strings.Repeat("[à-ῼ]", 17):           "large character classes",
		"(" + strings.Repeat("(a|b){1,100}", 10) + ")": "",
		"[": "missing closing ]",
	} {
		re, err := expression.Compile(text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) ||
			(re == nil) != (err != nil) {
			t.Errorf("%.30s: %v, want %q", text, err, want)
		}
	}
}

// TestShared checks that equal expressions are one.
func TestShared(t *testing.T) {
	one, err := expression.Compile("^a+b$")
	if err != nil {
		t.Fatal(err)
	}
	if other, err := expression.Compile("^" + strings.ToLower("A+B$")); err != nil || other != one {
		t.Errorf("the same expression is compiled twice: %v", err)
	}
	if !one.MatchString("aab") {
		t.Error("the expression does not match")
	}
}
