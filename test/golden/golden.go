// Package golden compares a test's text with the expected text in a file. Run the test with -update
// to rewrite the files, and review the difference before you commit it.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/internal/plan"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Text compares got with testdata/NAME.txt of the calling test's package.
// Blanks in the name become dashes.
func Text(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", strings.NewReplacer(" ", "-", "/", "-", ":", "_", ",", "", "'", "").Replace(name)+
		".txt")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: run the test with -update to write it", err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-) differs from the test's text (+); run the test with -update to accept it:\n%s", file, diff)
	}
}

// Session returns a plan as the shell session that applies it and the session that removes it. It
// omits the table's skeleton, which is always the same.
func Session(p plan.Plan) string {
	text := plan.Text(plan.Diff(nil, p)) + "\n# and back\n" + plan.Text(plan.Diff(p, nil))
	return strings.ReplaceAll(text, plan.TableText, "(the skeleton)\n")
}
