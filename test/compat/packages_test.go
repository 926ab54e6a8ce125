package compat

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Package is a package of this project with the types of its source.
type Package struct {
	*types.Package
	Files []*ast.File
	Info  *types.Info
}

// Load returns packages of this project by their paths without the module's name. The go command compiles what they
// import, unless the build cache has it.
func Load(root string, patterns ...string) (map[string]Package, error) {
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}\t{{.DepOnly}}\t{{.Dir}}\t{{.GoFiles}}"}
	for _, p := range patterns {
		args = append(args, "./"+p)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w\n%s", err, problems.Bytes())
	}
	exports := map[string]string{}
	wanted := map[string][]string{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		field := strings.Split(lines.Text(), "\t")
		exports[field[0]] = field[1]
		if field[2] == "false" {
			for _, name := range strings.Fields(strings.Trim(field[4], "[]")) {
				wanted[field[0]] = append(wanted[field[0]], filepath.Join(field[3], name))
			}
		}
	}
	files := token.NewFileSet()
	compiled := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	all := map[string]Package{}
	for path, sources := range wanted {
		p, err := check(files, compiled, path, sources)
		if err != nil {
			return nil, err
		}
		all[strings.TrimPrefix(path, "fairlead/")] = p
	}
	return all, nil
}

// check reads the source of a package.
func check(files *token.FileSet, compiled types.Importer, path string, sources []string) (p Package, err error) {
	for _, source := range sources {
		file, err := parser.ParseFile(files, source, nil, parser.SkipObjectResolution)
		if err != nil {
			return p, err
		}
		p.Files = append(p.Files, file)
	}
	p.Info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
		Uses: map[*ast.Ident]types.Object{}, Instances: map[*ast.Ident]types.Instance{}}
	p.Package, err = (&types.Config{Importer: compiled}).Check(path, files, p.Files, p.Info)
	return p, err
}
