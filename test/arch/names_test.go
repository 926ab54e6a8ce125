package arch_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// comparison matches a comparison with the name of a driver. What depends on a
// driver is a trait in model.Traits, which a new driver declares.
var comparison = regexp.MustCompile(`([!=]= |case (.*, )?)(model\.)?Driver[A-Z][A-Za-z]*\b`)

// TestDriversHaveTraits checks that nothing but a driver itself depends on the names
// of drivers. The laboratory compares paths, which it lists by their drivers.
func TestDriversHaveTraits(t *testing.T) {
	for line, want := range map[string]bool{
		"if n.Driver == model.DriverHost {":                true,
		"case model.DriverMacvlan, model.DriverIPvlan:":    true,
		"n := model.Network{Driver: model.DriverDevice}":   false,
		"if n.Driver != next.Driver {":                     false,
		"case e.MAC != \"\" && n.Driver != DriverMacvlan:": true,
	} {
		if comparison.MatchString(line) != want {
			t.Errorf("%s: want %v", line, want)
		}
	}
	for _, file := range sources(t, "../../internal") {
		if strings.HasPrefix(file, "../../internal/driver/") || strings.HasPrefix(file, "../../internal/lab/") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range comparison.FindAllString(string(text), -1) {
			t.Errorf("%s: %s: use a trait of model.Traits", file, found)
		}
	}
}

// sources returns the Go files below a folder, without tests.
func sources(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	return files
}
