package arch_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/test/arch"

	"github.com/google/go-cmp/cmp"
)

// TestSizes holds packages, types and interfaces to sizes that a reader can survey.
func TestSizes(t *testing.T) {
	limits := arch.Limits{Lines: 4000, Methods: 60, Interface: 12}
	found, err := arch.TooLarge("../..", []string{"internal", "cmd"}, limits)
	if err != nil {
		t.Fatal(err)
	}
	limits.Files = 15
	folders, err := arch.TooLarge("../..", []string{"internal/daemon", "internal/gateway"}, limits)
	if err != nil {
		t.Fatal(err)
	}
	if found = append(found, folders...); len(found) > 0 {
		t.Errorf("too large for a reader to survey:\n%s", strings.Join(found, "\n"))
	}
}

func TestSizesAreFound(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("in/a/a.go", `package a

import "fairlead/in/b" // a comment

type T[K any] struct{}

func (T[K]) One()  {}
func (*T[K]) Two() {}

type Small interface{ b.Two }

type Large interface {
	b.Two
	error
	Own()
}
`)
	write("in/a/second.go", "package a\n")
	write("in/b/b.go", "package b\n\ntype Two interface {\n\tOne()\n\tTwo()\n}\n")
	write("in/b/b_test.go", "package b\n"+strings.Repeat("\n", 50))
	found, err := arch.TooLarge(root, []string{"in"}, arch.Limits{Lines: 10, Files: 1, Methods: 1, Interface: 3})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"in/a has 12 lines, want at most 10", "in/a has 2 files, want at most 1",
		"in/a.T has 2 methods, want at most 1", "interface in/a.Large has 4 methods, want at most 3"}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
