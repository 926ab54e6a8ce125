package arch_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// comparison matches a comparison with the name of a driver or a data plane. What
// depends on one of them is a trait in package model, which a new one declares.
var comparison = regexp.MustCompile(`([!=]= |case (.*, )?)(model\.)?(Driver[A-Z][A-Za-z]*|Plane(EBPF|NFT|IPVS))\b`)

// mayCompare are the packages that may compare names, with the reasons.
var mayCompare = map[string]string{
	"internal/driver/":  "the drivers themselves",
	"internal/balance/": "the data planes themselves",
	"internal/kernel/":  "it reads the services of each data plane",
	"internal/lab/":     "it lists paths by their drivers",

	"internal/explain/flow/": "it follows packets through each data plane",
}

// TestTraitsInsteadOfNames checks that nothing else depends on the names of drivers and
// data planes.
func TestTraitsInsteadOfNames(t *testing.T) {
	for line, want := range map[string]bool{
		"if n.Driver == model.DriverHost {":                true,
		"case model.DriverMacvlan, model.DriverIPvlan:":    true,
		"n := model.Network{Driver: model.DriverDevice}":   false,
		"if n.Driver != next.Driver {":                     false,
		"case e.MAC != \"\" && n.Driver != DriverMacvlan:": true,
		"if v.Plane == model.PlaneEBPF {":                  true,
		"if v.Plane == model.PlaneAuto {":                  false,
	} {
		if comparison.MatchString(line) != want {
			t.Errorf("%s: want %v", line, want)
		}
	}
	for _, file := range sources(t, "../../internal") {
		allowed := func(folder string) bool { return strings.HasPrefix(file, "../../"+folder) }
		if slices.ContainsFunc(slices.Collect(maps.Keys(mayCompare)), allowed) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range comparison.FindAllString(string(text), -1) {
			t.Errorf("%s: %s: use a trait of package model", file, found)
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
