package kernel

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"testing"

	"fairlead/internal/plan"
)

// TestEveryKindHasABehaviour checks that the table has each type of object of
// package plan except those of the proxy, and that objects that are in no group can
// be set, removed and read.
func TestEveryKindHasABehaviour(t *testing.T) {
	known := map[string]bool{"Listener": true, "Reservation": true}
	for of, k := range kinds.byType {
		known[of.Name()] = true
		o := reflect.New(of).Elem().Interface().(plan.Object)
		_, grouped := groups[plan.GroupOf(o)]
		_, isSysctl := o.(plan.Sysctl) // its earlier value is written back
		if complete := k.set != nil && k.read != nil && (k.del != nil || isSysctl); complete == grouped {
			t.Errorf("%s: has set, del and read: %v; is in a group: %v", of, complete, grouped)
		}
	}
	for _, name := range planTypes(t) {
		if !known[name] {
			t.Errorf("plan.%s is not in the table of kinds", name)
		}
	}
}

// planTypes returns the names of the types of package plan that are objects.
func planTypes(t *testing.T) (names []string) {
	t.Helper()
	sources, err := filepath.Glob("../plan/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || f.Name.Name != "Key" {
				continue
			}
			if of, ok := f.Recv.List[0].Type.(*ast.Ident); ok {
				names = append(names, of.Name)
			}
		}
	}
	if len(names) < 30 {
		t.Fatalf("found only the objects %v", names)
	}
	return names
}
