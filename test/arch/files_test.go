package arch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead/test/arch"
)

// exports returns the files with the export data of packages and of all that they import, by path.
func exports(t *testing.T, packages ...string) map[string]string {
	t.Helper()
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"},
		packages...)...)
	list.Dir, list.Stderr = "../..", os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return files
}

// TestFilesReferInOneDirection checks that no two files of a package of the daemon refer to each other, directly or
// through further files: a reader who begins with the files that use no other meets nothing that comes later.
func TestFilesReferInOneDirection(t *testing.T) {
	of := exports(t, "./internal/daemon/...")
	for _, pkg := range arch.DaemonOrder {
		found, err := arch.Tangled("../../"+pkg, of)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range found {
			t.Error(one)
		}
	}
}

func TestCirclesOfFilesAreFound(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.go":      "package p\n\nimport \"strings\"\n\ntype A struct{ b B }\n\ntype C struct{}\n\nvar _ = strings.Fields\n",
		"b.go":      "package p\n\ntype B struct{}\n\nfunc (B) use() { one() }\n",
		"c.go":      "package p\n\nfunc one() { C{}.two() }\n",
		"d.go":      "package p\n\nfunc (C) two() { _ = A{}.b }\n",
		"e.go":      "package p\n\nfunc last() { one() }\n",
		"e_test.go": "package p\n\nfunc test() { last() }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := arch.Tangled(dir, exports(t, "strings"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{dir + ": a.go, b.go, c.go, d.go refer to each other in a circle"}
	if !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
	if err := os.WriteFile(filepath.Join(dir, "b.go"), []byte("package p\n\ntype B struct{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err = arch.Tangled(dir, exports(t, "strings")); err != nil || len(found) > 0 {
		t.Errorf("without a circle: found %q, %v", found, err)
	}
}
