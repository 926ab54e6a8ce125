package arch

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Tangled returns the sets of files of one package that refer to each other in a circle: each file of a set uses what
// another one declares, and the other one uses, perhaps through further files, what it declares. dir is the package's
// folder; exports has the files with the export data of what it imports, by path, as `go list -export` names them.
func Tangled(dir string, exports map[string]string) ([]string, error) {
	uses, err := fileReferences(dir, exports)
	if err != nil {
		return nil, fmt.Errorf("read the references of %s: %w", dir, err)
	}
	reach := map[string]map[string]bool{}
	for file := range uses {
		reach[file] = reachable(uses, file)
	}
	var found []string
	for _, file := range slices.Sorted(maps.Keys(uses)) {
		circle := slices.Sorted(maps.Keys(reach[file]))
		circle = slices.DeleteFunc(circle, func(to string) bool { return !reach[to][file] })
		if len(circle) > 1 && circle[0] == file {
			found = append(found, fmt.Sprintf("%s: %s refer to each other in a circle", dir, strings.Join(circle, ", ")))
		}
	}
	return found, nil
}

// reachable returns the files that a file uses, directly or through others.
func reachable(uses map[string]map[string]bool, file string) map[string]bool {
	seen := map[string]bool{}
	for next := []string{file}; len(next) > 0; next = next[1:] {
		for to := range uses[next[0]] {
			if !seen[to] {
				seen[to] = true
				next = append(next, to)
			}
		}
	}
	return seen
}

// fileReferences returns which files of a package use what another file of it declares.
func fileReferences(dir string, exports map[string]string) (map[string]map[string]bool, error) {
	set := token.NewFileSet()
	var files []*ast.File
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, failed := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		files, err = append(files, file), errors.Join(err, failed)
	}
	if err != nil {
		return nil, err
	}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(set, "gc", lookup)}
	pkg, err := config.Check(dir, set, files, &info)
	if err != nil {
		return nil, err
	}
	uses := map[string]map[string]bool{}
	for name, object := range info.Uses {
		from, to := nameOf(set, name.Pos()), nameOf(set, object.Pos())
		if object.Pkg() != pkg || from == to {
			continue
		}
		if uses[from] == nil {
			uses[from] = map[string]bool{}
		}
		uses[from][to] = true
	}
	return uses, nil
}

func nameOf(set *token.FileSet, at token.Pos) string { return filepath.Base(set.Position(at).Filename) }
