package e2e_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

type listedPath struct {
	Driver, Via string
	Promises    map[string]struct{ Kept bool }
}

func (p listedPath) name() string { return strings.TrimSuffix(p.Driver+"+"+p.Via, "+") }

// TestPathsTableMatchesJSON checks that every cell of the table equals the value in the JSON.
func TestPathsTableMatchesJSON(t *testing.T) {
	r := newRoom(t)
	var listed []listedPath
	if err := json.Unmarshal([]byte(r.succeed("paths", "-o", "json")), &listed); err != nil {
		t.Fatal(err)
	}
	shown := readTables(r.succeed("paths"))
	if len(listed) == 0 || len(shown) != len(listed) {
		t.Errorf("the table shows %d paths, the JSON %d", len(shown), len(listed))
	}
	for _, p := range listed {
		cells := shown[p.name()]
		if len(cells) != len(p.Promises) || len(cells) == 0 {
			t.Errorf("%s: the table has %d promises, the JSON %d", p.name(), len(cells), len(p.Promises))
		}
		for question, answer := range p.Promises {
			if want := map[bool]string{true: "yes", false: "no"}[answer.Kept]; cells[question] != want {
				t.Errorf("%s, %s: the table says %q, the JSON %q", p.name(), question, cells[question], want)
			}
		}
	}
}

// readTables returns the cells by path, then by promise.
func readTables(out string) map[string]map[string]string {
	shown := map[string]map[string]string{}
	var head []string
	for line := range strings.Lines(out) {
		cells := strings.Fields(line)
		switch {
		case len(cells) == 0:
			head = nil
		case cells[0] == "path":
			head = cells[1:]
			for _, name := range head {
				shown[name] = map[string]string{}
			}
		case head != nil && len(cells) == len(head)+1:
			for i, name := range head {
				shown[name][cells[0]] = cells[i+1]
			}
		}
	}
	return shown
}

// TestEveryPathHasPage checks that each driver and each publish mode has a page, and that a common
// page explains the paths that exist for comparison.
func TestEveryPathHasPage(t *testing.T) {
	r := newRoom(t)
	var listed []listedPath
	if err := json.Unmarshal([]byte(r.succeed("paths", "-o", "json")), &listed); err != nil {
		t.Fatal(err)
	}
	const docs = "../../docs/"
	for _, p := range listed {
		for _, name := range []string{p.Driver, p.Via} {
			if _, err := os.Stat(docs + "paths/" + name + ".md"); name != "" && err != nil {
				t.Error(err)
			}
		}
	}
	var lab struct {
		Suites, Paths []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(r.succeed("lab", "list", "-o", "json")), &lab); err != nil {
		t.Fatal(err)
	}
	peers, guide := readPage(t, docs+"paths/peers.md"), readPage(t, docs+"guide/laboratory.md")
	for _, p := range lab.Paths {
		if !strings.Contains(peers, "| `"+p.Name+"` |") {
			t.Errorf("docs/paths/peers.md does not explain %s", p.Name)
		}
	}
	for _, s := range lab.Suites {
		if !strings.Contains(guide, "| `"+s.Name+"` |") {
			t.Errorf("docs/guide/laboratory.md does not list the suite %s", s.Name)
		}
	}
	if len(lab.Paths) == 0 || len(lab.Suites) == 0 {
		t.Error("no path or no suite is listed")
	}
}

// TestEveryFlagIsDocumented checks that the guide explains every flag of `lab run`.
func TestEveryFlagIsDocumented(t *testing.T) {
	guide := readPage(t, "../../docs/guide/laboratory.md")
	found := 0
	for _, word := range strings.Fields(newRoom(t).succeed("lab", "run", "--help")) {
		if !strings.HasPrefix(word, "--") || word == "--help" || word == "--output" {
			continue
		}
		found++
		if !strings.Contains(guide, "| `"+word+" ") && !strings.Contains(guide, "| `"+word+"` |") {
			t.Errorf("docs/guide/laboratory.md does not explain %s", word)
		}
	}
	if found < 10 {
		t.Errorf("only %d flags found", found)
	}
}

func readPage(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
