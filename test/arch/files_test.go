package arch_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"fairlead/test/arch"
)

// TestFilesReferInOneDirection checks that no two files of a package of the daemon or the gateway refer to each other,
// directly or through further files: a reader who begins with the files that use no other meets nothing that comes
// later.
func TestFilesReferInOneDirection(t *testing.T) {
	all, exports := listPackages(t, "./internal/daemon/...", "./internal/gateway/...")
	for _, pkg := range all {
		found, err := arch.Tangled(pkg.Dir, exports)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range found {
			t.Error(one)
		}
	}
	if len(all) < len(arch.DaemonOrder)+40 {
		t.Errorf("%d packages, want all of the daemon and the gateway", len(all))
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
	_, exports := listPackages(t, "strings")
	found, err := arch.Tangled(dir, exports)
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
	if found, err = arch.Tangled(dir, exports); err != nil || len(found) > 0 {
		t.Errorf("without a circle: found %q, %v", found, err)
	}
}
