package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// Goroutines returns where the packages below root/tree start goroutines that do not recover: with the go
// statement, time.AfterFunc, context.AfterFunc or the method Go of a group with one argument. Except lists
// folders and files that may, below root.
func Goroutines(root, tree string, except []string) (found []string, err error) {
	err = filepath.WalkDir(filepath.Join(root, tree), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case slices.Contains(except, name):
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case !strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go"):
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if startsGoroutine(n) {
				found = append(found, fmt.Sprintf("%s:%d", name, files.Position(n.Pos()).Line))
			}
			return true
		})
		return nil
	})
	return found, err
}

func startsGoroutine(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		of, _ := f.X.(*ast.Ident)
		return f.Sel.Name == "Go" && len(n.Args) == 1 ||
			f.Sel.Name == "AfterFunc" && of != nil && (of.Name == "time" || of.Name == "context")
	}
	return false
}
