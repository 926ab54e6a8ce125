package script

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// summaryColumns are the columns of a laboratory's table that a summary shows,
// each with a title that needs no explanation.
var summaryColumns = []struct{ column, title string }{
	{"bulk", "throughput"},
	{"round trip", "round trip"},
	{"connect", "new connections"},
	{"CPU", "CPU time"},
}

// Summary returns the Markdown table for the marker "results FILE SUITE", where
// FILE is a page below root. The table shows some columns of the output of `fairlead lab run
// SUITE`: the baseline's figures, and the other paths' ratios to them.
func Summary(root, marker string) ([]byte, error) {
	words := strings.Fields(marker)
	if len(words) != 3 || words[0] != "results" {
		return nil, fmt.Errorf("marker %q: want results FILE SUITE", marker)
	}
	page, err := os.ReadFile(filepath.Join(root, words[1]))
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	t, err := readTable(string(page), words[2])
	if err != nil {
		return nil, fmt.Errorf("read suite %s in %s: %w", words[2], words[1], err)
	}
	return t.summary()
}

// labTable is a table that the laboratory printed.
type labTable struct {
	machine []string // kernel and CPUs
	titles  []string // of the columns, without that of the paths
	units   []string // of the columns
	rows    []labRow // the first one is the baseline's
}

// labRow contains the value and the ratio of each column.
type labRow struct {
	path    string
	figures [][]string
}

var (
	gap    = regexp.MustCompile(` {2,}`)
	figure = regexp.MustCompile(`(\d+(?: \d{3})*(?:\.\d+)?) +(≈?\d+(?:\.\d+)? ±\d+(?:\.\d+)?)`)
)

// readTable returns the table in the page's block whose first line begins with
// "SUITE · ".
func readTable(page, suite string) (labTable, error) {
	_, block, found := strings.Cut(page, "```text\n"+suite+" · ")
	if !found {
		return labTable{}, fmt.Errorf("no block begins with %q", suite+" · ")
	}
	block, _, _ = strings.Cut(block, "\n```")
	parts := strings.Split(block, "\n\n")
	machine := strings.Split(parts[0], " · ")
	if len(parts) < 2 || len(machine) < 2 {
		return labTable{}, errors.New("the block does not contain a table of the laboratory")
	}
	lines := strings.Split(parts[1], "\n")
	if len(lines) < 3 {
		return labTable{}, errors.New("the table has no rows")
	}
	t := labTable{machine: machine[:2], titles: gap.Split(lines[0], -1)[1:]}
	for i, unit := range gap.Split(lines[1], -1) {
		if i%2 == 1 { // every other one is "× BASELINE"
			t.units = append(t.units, strings.TrimPrefix(unit, "p50 "))
		}
	}
	for _, line := range lines[2:] {
		path, rest, _ := strings.Cut(line, " ")
		row := labRow{path, figure.FindAllStringSubmatch(rest, -1)}
		if len(row.figures) != len(t.titles) || len(t.units) != len(t.titles) {
			return labTable{}, fmt.Errorf("path %s has %d figures and %d units in %d columns",
				path, len(row.figures), len(t.units), len(t.titles))
		}
		t.rows = append(t.rows, row)
	}
	return t, nil
}

// summary returns the table's summary in Markdown.
func (t labTable) summary() ([]byte, error) {
	var out bytes.Buffer
	var columns []int
	fmt.Fprintf(&out, "| %s |", strings.Join(t.machine, ", "))
	for _, c := range summaryColumns {
		i := slices.Index(t.titles, c.column)
		if i < 0 {
			return nil, fmt.Errorf("summarize table: it has no column %q", c.column)
		}
		columns = append(columns, i)
		fmt.Fprintf(&out, " %s |", c.title)
	}
	fmt.Fprintf(&out, "\n|%s\n", strings.Repeat("---|", len(columns)+1))
	for n, row := range t.rows {
		fmt.Fprintf(&out, "| `%s` |", row.path)
		for _, i := range columns {
			value, ratio := row.figures[i][1], row.figures[i][2]
			if n == 0 {
				ratio = value + " " + t.units[i]
			}
			fmt.Fprintf(&out, " %s |", ratio)
		}
		out.WriteString("\n")
	}
	return out.Bytes(), nil
}
