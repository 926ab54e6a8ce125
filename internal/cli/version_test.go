package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// formatConstant is a declaration of the version of a format, as all packages write it.
var formatConstant = regexp.MustCompile(`(?m)^const ([Ff]ormat|[Ss]chema) = (\d+)$`)

// TestAllFormatsAreListed compares the formats of `fairlead version -o json` with the constants in the sources.
func TestAllFormatsAreListed(t *testing.T) {
	declared := map[string]int{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range formatConstant.FindAllStringSubmatch(string(text), -1) {
			declared[filepath.Dir(path)+" "+found[1]+" "+found[2]]++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if listed := reflect.TypeFor[formats]().NumField(); listed != len(declared) {
		t.Errorf("the command lists %d formats, and the sources declare %v", listed, declared)
	}
}
