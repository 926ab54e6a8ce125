package check_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// workflow is what the tests read of a workflow of GitHub.
type workflow struct {
	Permissions map[string]string
	Jobs        map[string]struct {
		Minutes int `yaml:"timeout-minutes"`
		Steps   []step
	}
}

// step runs a script or an action.
type step struct{ Run, Uses string }

// pinned is an action at a commit. A tag or a branch can be moved to another commit.
var pinned = regexp.MustCompile(`^[\w./-]+@[0-9a-f]{40}$`)

// target is a target of make in a script, and program a file of the project.
var (
	target  = regexp.MustCompile(`\bmake ([a-z][a-z-]*)`)
	program = regexp.MustCompile(`(?:^|[\s;&|])((?:\./)?(?:test|packaging|\.ci)/[\w./-]+)`)
)

// wrongSteps returns what is wrong with the steps of a workflow's text, if makefile has the targets.
func wrongSteps(t *testing.T, text, makefile []byte) (wrong []string) {
	t.Helper()
	var w workflow
	if err := yaml.Unmarshal(text, &w); err != nil {
		return []string{err.Error()}
	}
	if len(w.Permissions) == 0 || len(w.Jobs) == 0 {
		wrong = append(wrong, "it has no jobs, or the permissions of the repository's default")
	}
	for name, job := range w.Jobs {
		if job.Minutes == 0 || len(job.Steps) == 0 {
			wrong = append(wrong, name+" has no steps, or no time limit")
		}
		for _, s := range job.Steps {
			if s.Uses != "" && !pinned.MatchString(s.Uses) {
				wrong = append(wrong, s.Uses+" is not pinned by a commit")
			}
			for _, found := range target.FindAllStringSubmatch(s.Run, -1) {
				if !regexp.MustCompile(`(?m)^` + found[1] + `:`).Match(makefile) {
					wrong = append(wrong, "make "+found[1]+" does not exist")
				}
			}
			for _, found := range program.FindAllStringSubmatch(s.Run, -1) {
				if _, err := os.Stat(filepath.Join("../..", found[1])); err != nil {
					wrong = append(wrong, found[1]+" does not exist")
				}
			}
		}
	}
	return wrong
}

// TestWorkflows: the workflows run what the project has, and no action that can change under its name.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) < 3 {
		t.Fatalf("the workflows are %v, %v", files, err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, what := range wrongSteps(t, text, makefile) {
			t.Errorf("%s: %s", file, what)
		}
		if !target.Match(text) {
			t.Errorf("%s runs no target of make", file)
		}
	}
}

// TestWrongWorkflows: the check of workflows can fail.
func TestWrongWorkflows(t *testing.T) {
	const wrong = `
permissions: {contents: read}
jobs:
  a: {timeout-minutes: 5, steps: [{uses: actions/checkout@v4}, {run: make gone && ./test/gone x}]}
  b: {steps: [{run: make test}]}
`
	got := strings.Join(wrongSteps(t, []byte(wrong), []byte("test: all\n")), "; ")
	for _, want := range []string{"actions/checkout@v4 is not pinned", "make gone does not", "./test/gone does not",
		"b has no steps, or no time limit"} {
		if !strings.Contains(got, want) {
			t.Errorf("a wrong workflow has %q, want %q", got, want)
		}
	}
	const well = `
permissions: {contents: read}
jobs:
  a: {timeout-minutes: 5, steps: [{uses: "a/b@0123456789abcdef0123456789abcdef01234567"}, {run: make test && test/fuzz}]}
`
	if got := wrongSteps(t, []byte(well), []byte("test: all\n")); len(got) > 0 {
		t.Errorf("a workflow has %q", got)
	}
}

// TestFuzzersHaveInputs: each fuzzer that test/fuzz lists has inputs in testdata, which each go test runs.
func TestFuzzersHaveInputs(t *testing.T) {
	out, err := exec.Command("../fuzz").Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) < 20 {
		t.Errorf("test/fuzz lists %q", lines)
	}
	for _, line := range lines {
		pkg, fuzzer, _ := strings.Cut(line, " ")
		inputs, err := filepath.Glob(filepath.Join("../..", pkg, "testdata/fuzz", fuzzer, "*"))
		if err != nil || len(inputs) == 0 {
			t.Errorf("%s has no inputs: run it for a while, and keep some of those below $(go env GOCACHE)/fuzz", line)
		}
	}
}
