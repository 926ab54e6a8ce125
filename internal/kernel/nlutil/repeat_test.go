package nlutil_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// lists are the functions of the netlink library that dump a table of the kernel.
var lists = map[string]bool{"LinkList": true, "AddrList": true, "RouteList": true, "RouteListFiltered": true,
	"NeighList": true, "NeighProxyList": true, "RuleList": true, "RuleListFiltered": true, "FilterList": true,
	"QdiscList": true, "ClassList": true, "ChainList": true, "ConntrackTableList": true, "XfrmStateList": true,
	"XfrmPolicyList": true, "BridgeVlanList": true}

// repeating are Retry, and the function of package rtnl that calls it with its argument.
var repeating = map[string]bool{"Retry": true, "dump": true}

// TestDumpsAreRepeated finds dumps of the kernel's tables that are not repeated when the table
// changes meanwhile: each must be an argument of a repeating function, or in a function that is.
func TestDumpsAreRepeated(t *testing.T) {
	dumps := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		n, once := dumpsOf(file)
		dumps += n
		for _, at := range once {
			t.Errorf("%s: the dump is not repeated: call it with nlutil.Retry", files.Position(at))
		}
		return nil
	})
	if err != nil || dumps < 10 {
		t.Errorf("found %d dumps, %v", dumps, err)
	}
}

// dumpsOf returns the number of dumps in a file, and the positions of those outside of repeating functions.
func dumpsOf(file *ast.File) (n int, once []token.Pos) {
	repeated := map[ast.Node]bool{}
	ast.Inspect(file, func(node ast.Node) bool {
		if call, ok := node.(*ast.CallExpr); ok && repeating[nameOf(call.Fun)] {
			for _, arg := range call.Args {
				ast.Inspect(arg, func(inner ast.Node) bool { repeated[inner] = true; return true })
			}
		}
		if name, ok := node.(*ast.SelectorExpr); ok && lists[name.Sel.Name] {
			n++
			if !repeated[node] {
				once = append(once, node.Pos())
			}
		}
		return true
	})
	return n, once
}

// nameOf returns the name of a called function without its package.
func nameOf(fn ast.Expr) string {
	switch fn := fn.(type) {
	case *ast.SelectorExpr:
		return fn.Sel.Name
	case *ast.Ident:
		return fn.Name
	case *ast.IndexExpr:
		return nameOf(fn.X)
	}
	return ""
}
