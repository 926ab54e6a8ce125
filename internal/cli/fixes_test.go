package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"fairlead/internal/cli/command"
)

// TestFixesAreCommands: the commands of Fairlead that doctor prints exist, with their flags.
func TestFixesAreCommands(t *testing.T) {
	files, err := filepath.Glob("../explain/doctor/*.go")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("fairlead ((?:[a-z]+ ?)+)([^,;)`]*)")
	flags := regexp.MustCompile("--([a-z-]+)")
	found := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, text := range literals(t, file) {
			for _, match := range named.FindAllStringSubmatch(text, -1) {
				root := newRoot(&command.App{Out: command.NewPrinter(io.Discard), Err: command.NewPrinter(io.Discard),
					Log: os.Stderr})
				c, _, err := root.Find(strings.Fields(match[1]))
				if err != nil || c == root || c.HasSubCommands() {
					t.Errorf("%s: there is no command %q: %v", file, match[0], err)
					continue
				}
				found++
				for _, flag := range flags.FindAllStringSubmatch(match[2], -1) {
					if c.Flag(flag[1]) == nil {
						t.Errorf("%s: %s has no flag --%s", file, c.CommandPath(), flag[1])
					}
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("%d commands found in the fixes", found)
	}
}

// literals returns the string literals of a Go file. Those that "+" joins are one.
func literals(t *testing.T, file string) (all []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		e, is := n.(ast.Expr)
		text := joined(e)
		if is && text != "" {
			all = append(all, text)
		}
		return text == ""
	})
	return all
}

// joined returns the text of a literal or of a sum; what is not a literal is an X. It is empty
// for other expressions.
func joined(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		if err == nil && e.Kind == token.STRING {
			return text
		}
	case *ast.BinaryExpr:
		x, y := joined(e.X), joined(e.Y)
		if e.Op == token.ADD && x+y != "" {
			return strings.Join([]string{x, y}, map[bool]string{true: "X"}[x == "" || y == ""])
		}
	}
	return ""
}
