package arch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// gatewayValues is the package of the gateway's configuration.
const gatewayValues = "fairlead/internal/model/gateway"

// gatewayReaders are the packages that build a gateway from its configuration, or report what has no effect.
var gatewayReaders = []string{"./internal/gateway/...", "./internal/process/...", "./internal/frontend/traefik/...",
	"./internal/daemon/upstream", "./internal/model/gateway"}

// copiers are the files of these packages that only decode, compare, copy or show values.
var copiers = []string{"internal/gateway/view/", "internal/gateway/build/equal.go",
	"internal/frontend/traefik/declared.go",
	"internal/frontend/traefik/static/static.go", "internal/frontend/traefik/static/entry.go",
	"internal/frontend/traefik/static/settings.go",
	"internal/frontend/traefik/qualify.go", "internal/frontend/traefik/refer.go", "internal/frontend/traefik/merge.go"}

// unread are the fields that the readers do not need, with the reason.
var unread = map[string]string{
	"EntryPoint.AsDefault":    "Static.Default has the names",
	"Failover.HealthCheck":    whole,
	"Mirroring.HealthCheck":   whole,
	"TCPWeighted.HealthCheck": whole,
	"Weighted.HealthCheck":    whole,
	"Redis.DB":                redis,
	"Redis.DialTimeout":       redis,
	"Redis.Endpoints":         redis,
	"Redis.MaxActiveConns":    redis,
	"Redis.MinIdleConns":      redis,
	"Redis.Password":          redis,
	"Redis.PoolSize":          redis,
	"Redis.ReadTimeout":       redis,
	"Redis.TLS":               redis,
	"Redis.Username":          redis,
	"Redis.WriteTimeout":      redis,
}

const (
	whole = "a service that consists of others always knows which of them are up"
	redis = "a rateLimit with redis cannot be used, and says why"
)

// TestEachFieldOfTheGatewayIsRead checks that each field of the configuration, and so each key of labels, files and
// flags that decodes to one, is read by code that builds a gateway or reports that the field has no effect.
func TestEachFieldOfTheGatewayIsRead(t *testing.T) {
	program := loadTypes(t, gatewayReaders)
	model, err := program.importer.Import(gatewayValues)
	if err != nil {
		t.Fatal(err)
	}
	fields := fieldsOf(model)
	if len(fields) < 300 {
		t.Fatalf("the configuration has %d fields: the test does not find them", len(fields))
	}
	read := program.read(t, fields)
	for _, name := range slices.Sorted(maps.Values(fields)) {
		switch why, listed := unread[name]; {
		case !read[name] && !listed:
			t.Errorf("%s: nothing reads the field, so its key has no effect: read it, or report that", name)
		case read[name] && listed:
			t.Errorf("%s is read, although unread says: %s", name, why)
		}
	}
}

// fieldsOf returns the names of the fields of the configuration by their variables.
func fieldsOf(model *types.Package) map[*types.Var]string {
	all := map[*types.Var]string{}
	for _, root := range []string{"HTTP", "TCP", "UDP", "TLS", "Static"} {
		addFields(all, model.Scope().Lookup(root).Type())
	}
	return all
}

// addFields adds the fields of a type, and of the types of these in its package.
func addFields(all map[*types.Var]string, t types.Type) {
	switch t := t.(type) {
	case *types.Pointer:
		addFields(all, t.Elem())
	case *types.Slice:
		addFields(all, t.Elem())
	case *types.Map:
		addFields(all, t.Elem())
	case *types.Named:
		s, ok := t.Underlying().(*types.Struct)
		if !ok || t.Obj().Pkg().Path() != gatewayValues {
			return
		}
		for v := range s.Fields() {
			if _, known := all[v]; !known {
				all[v] = t.Obj().Name() + "." + v.Name()
				addFields(all, v.Type())
			}
		}
	}
}

// program has packages of this module whose files are to be inspected. The types of what they import are in
// the files that the compiler has written.
type program struct {
	files    *token.FileSet
	importer types.Importer
	packages []listed
}

// listed is a package as `go list` describes it.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
}

// listPackages returns the packages that match, and the files with the export data of these and of all that they
// import, by path.
func listPackages(t *testing.T, patterns ...string) (matching []listed, exports map[string]string) {
	t.Helper()
	list := exec.Command("go", append([]string{"list", "-export", "-deps",
		"-json=ImportPath,Dir,Export,GoFiles,DepOnly"}, patterns...)...)
	list.Dir = filepath.Join("..", "..")
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("list packages: %v: %s", err, &stderr)
	}
	exports = map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return matching, exports
		} else if err != nil {
			t.Fatal(err)
		}
		if exports[l.ImportPath] = l.Export; !l.DepOnly {
			matching = append(matching, l)
		}
	}
}

func loadTypes(t *testing.T, patterns []string) *program {
	t.Helper()
	p := &program{files: token.NewFileSet()}
	var exports map[string]string
	p.packages, exports = listPackages(t, patterns...)
	p.importer = importer.ForCompiler(p.files, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	return p
}

// read returns the names of the fields whose values the files use.
func (p *program) read(t *testing.T, fields map[*types.Var]string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, l := range p.packages {
		var files []*ast.File
		for _, name := range l.GoFiles {
			f, err := parser.ParseFile(p.files, filepath.Join(l.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
		config := types.Config{Importer: p.importer}
		checked, err := config.Check(l.ImportPath, p.files, files, info)
		if err != nil {
			t.Fatal(err)
		}
		names := fields
		if l.ImportPath == gatewayValues {
			names = fieldsOf(checked) // it does not import itself
		}
		for _, f := range files {
			path := filepath.ToSlash(p.files.Position(f.Pos()).Filename)
			if !slices.ContainsFunc(copiers, func(c string) bool { return strings.Contains(path, c) }) {
				addRead(found, names, info, f)
			}
		}
	}
	return found
}

// addRead adds the fields that a file selects, without those that it only assigns to.
func addRead(found map[string]bool, names map[*types.Var]string, info *types.Info, f *ast.File) {
	written := map[ast.Expr]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, to := range n.Lhs {
				written[to] = n.Tok == token.ASSIGN
			}
		case *ast.SelectorExpr:
			if s := info.Selections[n]; s != nil && s.Kind() == types.FieldVal && !written[n] {
				found[names[s.Obj().(*types.Var)]] = true
			}
		}
		return true
	})
}
