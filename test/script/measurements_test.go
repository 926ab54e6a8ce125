package script_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/lab/runner"
	"fairlead/internal/lab/suite"
)

// labRun is a command in a cell of the guide: a suite, and between two machines --ssh.
var labRun = regexp.MustCompile("^`fairlead lab run ([a-z-]+)( --ssh [^ `]+)?`$")

// TestMeasurementsOfOthers checks that the guide has commands for every publication whose figures a
// suite has, and that their suites can be measured on as many machines as the guide says.
func TestMeasurementsOfOthers(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs/guide/laboratory.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Measurements of others\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var quoted []string
	for _, s := range suite.Suites() {
		if len(s.Published) > 0 {
			quoted = append(quoted, s.Name)
		}
	}
	var named []string
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) != 3 || !strings.HasPrefix(cells[0], "\"") {
			continue
		}
		for i, two := range []bool{false, true} {
			match := labRun.FindStringSubmatch(cells[i+1])
			if match == nil || (match[2] != "") != two {
				t.Errorf("%s: %q is not a command on %d machines", cells[0], cells[i+1], i+1)
				continue
			}
			s, found := suite.Find(match[1])
			if !found {
				t.Errorf("%s: there is no suite %s", cells[0], match[1])
				continue
			}
			if !two {
				named = append(named, s.Name)
			}
			if _, err := runner.Divide(&s, false); two && err != nil {
				t.Errorf("%s: %v", cells[i+1], err)
			}
		}
	}
	slices.Sort(quoted)
	slices.Sort(named)
	if !slices.Equal(named, quoted) || len(quoted) != 5 {
		t.Errorf("the guide has commands for the suites %q, want all with published figures, %q", named, quoted)
	}
}
