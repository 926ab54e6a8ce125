package arch_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fairlead/test/arch"
)

var (
	quoted   = regexp.MustCompile("`([^`\n]+)`")
	pathLike = regexp.MustCompile(`^(bpf|cmd|docs|internal|test)(/[A-Za-z0-9_.-]+)*$`)
)

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// pathsIn returns the paths of this repository that a text quotes.
func pathsIn(text string) (paths []string) {
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		if pathLike.MatchString(m[1]) && !strings.Contains(m[1], "NAME") {
			paths = append(paths, m[1])
		}
	}
	return paths
}

// TestArchitecturePageNamesExistingFiles checks docs/architecture.md against the tree.
func TestArchitecturePageNamesExistingFiles(t *testing.T) {
	paths := pathsIn(page(t))
	if len(paths) < 100 {
		t.Errorf("docs/architecture.md quotes only %d paths", len(paths))
	}
	for _, p := range paths {
		if _, err := os.Stat("../../" + p); err != nil {
			t.Errorf("docs/architecture.md names a path that does not exist: %v", err)
		}
	}
}

// groups returns the page's groups from the top down, and the group of each
// package.
func groups(text string) (order []string, of map[string]string) {
	of = map[string]string{}
	table := text[strings.Index(text, "\n## Packages\n"):]
	table = table[:strings.Index(table, "\n## What happens to a publish\n")]
	for line := range strings.Lines(table) {
		cell := strings.Split(line, "|")
		if len(cell) < 4 || !strings.Contains(cell[2], "`") {
			continue
		}
		group := strings.TrimSpace(cell[1])
		if !slices.Contains(order, group) {
			order = append(order, group)
		}
		for _, p := range pathsIn(cell[2]) {
			of[p] = group
		}
	}
	return order, of
}

// checkGroups returns the errors in the page's table of packages.
func checkGroups(g arch.Graph, order []string, of map[string]string) (wrong []string) {
	for pkg, imports := range g {
		if !strings.HasPrefix(pkg, "internal/") && !strings.HasPrefix(pkg, "cmd/") {
			continue
		}
		if of[pkg] == "" {
			wrong = append(wrong, pkg+" is missing on the page")
			continue
		}
		for _, to := range imports {
			if of[to] != "" && slices.Index(order, of[to]) < slices.Index(order, of[pkg]) {
				wrong = append(wrong, pkg+" ("+of[pkg]+") imports "+to+" of the group above it ("+of[to]+")")
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

// TestArchitecturePageNamesEveryPackage checks the page's table against the packages, and their
// imports against the order of its groups.
func TestArchitecturePageNamesEveryPackage(t *testing.T) {
	order, of := groups(page(t))
	graph := arch.Graph{}
	for pkg, imports := range load(t) {
		pkg = strings.TrimPrefix(pkg, arch.Module)
		graph[pkg] = nil
		for _, to := range imports {
			graph[pkg] = append(graph[pkg], strings.TrimPrefix(to, arch.Module))
		}
	}
	for _, w := range checkGroups(graph, order, of) {
		t.Error(w)
	}
	wrong := checkGroups(arch.Graph{"internal/a": {"internal/b"}, "internal/b": nil, "internal/c": nil},
		[]string{"upper", "lower"}, map[string]string{"internal/a": "lower", "internal/b": "upper"})
	want := []string{"internal/a (lower) imports internal/b of the group above it (upper)",
		"internal/c is missing on the page"}
	if !slices.Equal(wrong, want) {
		t.Errorf("a wrong page gives %q", wrong)
	}
}
