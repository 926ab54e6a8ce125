package script_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead/test/script"
)

func TestCommands(t *testing.T) {
	page := "Text with `$ fairlead no`.\n" +
		"```console\n$ fairlead lab list\nquick  what is seen first\n$ fairlead lab run quick \\\n    --rounds 3\n```\n" +
		"```text\n$ fairlead never\n```\n" +
		"````sh\n$ make lab\n```\n````\n"
	got, err := script.Commands([]byte(page))
	if err != nil {
		t.Fatal(err)
	}
	want := []script.Command{
		{Line: 3, Text: "fairlead lab list"},
		{Line: 5, Text: "fairlead lab run quick --rounds 3"},
		{Line: 12, Text: "make lab"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestTables checks that the commands in the cells of a marked table are found.
func TestTables(t *testing.T) {
	page := "| `fairlead no` |\n\n<!-- run -->\n| a | b |\n|---|---|\n| `ip link` | `fairlead ls`, `fairlead stats` |\n\n| `fairlead no` |\n"
	got, err := script.Commands([]byte(page))
	if want := []script.Command{{Line: 6, Text: "fairlead ls"}, {Line: 6, Text: "fairlead stats"}}; err != nil ||
		!slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

func TestFiles(t *testing.T) {
	page := "<!-- file a.conf -->\n```text\nx {\n}\n```\n\n<!-- writes b.yaml -->\n```yaml\nx:\n```\n"
	got, err := script.Files([]byte(page))
	if want := []script.File{{Name: "a.conf", Text: "x {\n}\n"},
		{Name: "b.yaml", Text: "x:\n", Written: true}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if _, err := script.Files([]byte("<!-- file a -->\n\ntext\n")); err == nil {
		t.Error("a file without a block is accepted")
	}
}

func TestCommandsRefusesBlocks(t *testing.T) {
	for name, page := range map[string]string{
		"no command":   "```sh\nfairlead lab list\n```\n",
		"never closed": "```console\n$ fairlead lab list\n",
	} {
		if _, err := script.Commands([]byte(page)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestFill(t *testing.T) {
	output := func(command string) ([]byte, error) {
		if command != "fairlead paths" {
			return nil, errors.New("unknown command")
		}
		return []byte("| a |\n\n"), nil
	}
	page := "above\n<!-- generated:begin fairlead paths -->\nstale\n<!-- generated:end -->\nbelow\n"
	want := strings.Replace(page, "stale", "| a |", 1)
	got, err := script.Fill([]byte(page), output)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	again, err := script.Fill(got, output)
	if err != nil || string(again) != want {
		t.Errorf("a second Fill returns %q, %v", again, err)
	}
	for name, page := range map[string]string{
		"no end":          "<!-- generated:begin fairlead paths -->\n",
		"unclosed marker": "<!-- generated:begin fairlead paths\n",
		"command fails":   "<!-- generated:begin fairlead no -->\n<!-- generated:end -->\n",
	} {
		if _, err := script.Fill([]byte(page), output); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestRunnable(t *testing.T) {
	const partly = ` 2>notes || { cat notes; grep -q "have no figure\|delayed: p99 lateness" notes; }`
	for documented, want := range map[string]string{
		"make lab":               `make -C /src lab OUT="$PWD" LAB_FLAGS='` + script.Complete + `'`,
		"make test":              "make -n -C /src test",
		"fairlead service watch": "timeout 3 room fairlead service watch || test $? -eq 124",
		"ipvsadm -S -n | fairlead service import ipvsadm - > f": "cat rules | room fairlead service import ipvsadm - > f",
		"fairlead explain 'db -> :80' --probe":                  "room fairlead explain 'db -> :80' --probe --timeout 30s",
		"fairlead paths -o json":                                "fairlead paths -o json",
		"fairlead run -p 8080:80 -- nginx":                      "timeout 3 room fairlead run -p 8080:80 -- nginx || test $? -eq 124",
		"fairlead lab run":                                      "fairlead lab run " + script.Short + partly,
		"fairlead lab run quick --rounds 30 --seed 7":           "fairlead lab run quick --seed 7 " + script.Short + partly,
		"fairlead lab run --duration=5s nat > nat.txt":          "fairlead lab run nat " + script.Short + " > nat.txt" + partly,
		"fairlead lab run nat --netem loss=1%": "fairlead lab run nat --netem loss=1% " + script.Short +
			` 2>notes || { cat notes; grep -q "have no figure\|delayed: p99 lateness\|load the module sch_netem" notes; }`,
		"fairlead lab run --fail-if 'nat.bulk.ratio<.8'": "fairlead lab run --fail-if 'nat.bulk.ratio<.8' " +
			script.Short + " || test $? -eq 1",
	} {
		got, err := script.Runnable(documented, "/src")
		if err != nil {
			t.Errorf("%s: %v", documented, err)
		} else if got != want {
			t.Errorf("%s runs as\n\t%s, want\n\t%s", documented, got, want)
		}
	}
	for _, documented := range []string{"ip link", "make test && rm -r /", "fairleader"} {
		if got, err := script.Runnable(documented, "/src"); err == nil {
			t.Errorf("%s runs as %s, want an error", documented, got)
		}
	}
}
