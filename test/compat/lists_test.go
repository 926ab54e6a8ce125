package compat

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/frontend/docker"
	"fairlead/test/documented"
)

// listed compares lines with a list in testdata: each line of the list must be there. With -release it adds the new
// ones.
func listed(t *testing.T, name string, now []string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	text, err := os.ReadFile(file)
	if err != nil && !(*release != "" && errors.Is(err, fs.ErrNotExist)) {
		t.Fatal(err)
	}
	older := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if *release != "" {
		older = slices.DeleteFunc(append(older, now...), func(line string) bool { return line == "" })
		slices.Sort(older)
		older = slices.Compact(older)
		write(t, file, strings.Join(older, "\n")+"\n")
	}
	for _, line := range older {
		if !slices.Contains(now, line) {
			t.Errorf("%s is gone, which %s promises", line, file)
		}
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestMetrics: each metric has the name, type and labels that it had.
func TestMetrics(t *testing.T) {
	var now []string
	for _, m := range documented.Metrics(t, root) {
		now = append(now, strings.TrimSpace(m.Name+" "+m.Kind), m.Name)
		for _, label := range m.Labels {
			now = append(now, m.Name+" "+label)
		}
	}
	slices.Sort(now)
	listed(t, "metrics", slices.Compact(now))
}

var (
	manFlag     = regexp.MustCompile(`(?m)^\\fB(?:-\w\\fP, \\fB)?(--[a-z0-9-]+)\\fP`)
	manShort    = regexp.MustCompile(`(?m)^\\fB(-\w)\\fP, \\fB--`)
	environment = regexp.MustCompile(`FAIRLEAD_[A-Z_]+`)
)

// TestCommands: each command, flag and environment variable of the manual pages exists, which make check compares with
// the program.
func TestCommands(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs/man/*.8"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("there are no manual pages: %v", err)
	}
	var now []string
	for _, page := range pages {
		text := string(read(t, page))
		command := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(page), ".8"), "-", " ")
		now = append(append(now, command), environment.FindAllString(text, -1)...)
		for _, pattern := range []*regexp.Regexp{manFlag, manShort} {
			for _, f := range pattern.FindAllStringSubmatch(text, -1) {
				now = append(now, command+" "+f[1])
			}
		}
	}
	slices.Sort(now)
	now = slices.Compact(now)
	if len(now) < 500 {
		t.Errorf("the pages have %d commands and flags", len(now))
	}
	listed(t, "commands", now)
}

// TestDocker: each option of networks and each label of containers exists.
func TestDocker(t *testing.T) {
	now := []string{"label " + docker.LabelPublish, "label " + docker.LabelUnpublished}
	for _, o := range docker.Options() {
		now = append(now, "option "+o.Name)
	}
	listed(t, "docker", now)
}
