package importer_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/frontend/importer"
)

// imports reports whether a line begins a block that is imported.
func imports(line string) bool {
	return slices.Contains([]string{"virtual_server", "vrrp_instance"}, strings.Fields(line + " x")[0])
}

// TestEveryLineIsImportedOrReported changes each line of a virtual server or of a VRRP instance, one at a
// time. The result must change, or the line, or a block around it, must be reported.
// Thus no statement is dropped silently.
func TestEveryLineIsImportedOrReported(t *testing.T) {
	files, err := filepath.Glob("testdata/*.conf")
	if err != nil || len(files) == 0 {
		t.Fatal("no configurations", err)
	}
	for _, file := range files {
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(whole), "\n")
		imported := importer.Keepalived(whole)
		before := text(t, imported)
		var around []int // the lines of the blocks that are open
		for i, line := range lines {
			plain, _, _ := strings.Cut(strings.ReplaceAll(line, "!", "#"), "#")
			statement := strings.Trim(plain, "{} \t\r")
			reported := slices.ContainsFunc(append(slices.Clone(around), i+1), func(n int) bool {
				return slices.ContainsFunc(imported.Reports, func(l importer.Report) bool { return l.Line == n })
			})
			if statement != "" && !strings.Contains(statement, "}") && len(around) > 0 &&
				imports(lines[around[0]-1]) && !reported {
				changed := slices.Clone(lines)
				changed[i] = strings.Replace(line, statement, statement+"7", 1)
				if text(t, importer.Keepalived([]byte(strings.Join(changed, "\n")))) == before {
					t.Errorf("%s:%d: %q is neither imported nor reported", file, i+1, statement)
				}
			}
			around = slices.Concat(around, slices.Repeat([]int{i + 1}, strings.Count(plain, "{")))
			around = around[:max(0, len(around)-strings.Count(plain, "}"))]
		}
	}
}
