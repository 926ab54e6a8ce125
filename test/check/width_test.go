package check_test

import (
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxColumns is the width of a line of Go, with 4 columns per tab.
const maxColumns = 120

// unbroken is the length from which a string or comment may make a line longer.
const unbroken = 40

// TestLinesWrap checks every Go file that is not generated.
func TestLinesWrap(t *testing.T) {
	list, err := exec.Command("git", "ls-files", "--full-name", "../../*.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range strings.Fields(string(list)) {
		if strings.HasSuffix(file, "_bpfel.go") {
			continue
		}
		source, err := os.ReadFile(filepath.Join("../..", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range tooWide(source) {
			t.Errorf("%s:%d: wrap the line at %d columns", file, line, maxColumns)
		}
	}
}

func TestWideLinesAreFound(t *testing.T) {
	call := "\tf(" + strings.Repeat("argument, ", 12) + "argument)"
	text := strings.Repeat("x", unbroken)
	source := strings.Join([]string{"package wide", "", "func _() {", call,
		call[:len(call)-1] + `, "` + text + `")`, "\tg() // " + strings.Repeat(text, 3), "\ts := `" + text,
		strings.Repeat("words ", 21) + "`", "\tf(short)", "}", ""}, "\n")
	if got := tooWide([]byte(source)); !slices.Equal(got, []int{4}) {
		t.Errorf("lines %v are too wide, want line 4", got)
	}
}

// tooWide returns the numbers of the lines that have more than maxColumns columns
// and no string or comment of unbroken characters or more. The spaces with which
// gofmt aligns a column of values count as one.
func tooWide(source []byte) (found []int) {
	exempt := map[int]bool{}
	var s scanner.Scanner
	files := token.NewFileSet()
	s.Init(files.AddFile("", -1, len(source)), source, nil, scanner.ScanComments)
	for {
		at, kind, text := s.Scan()
		if kind == token.EOF {
			break
		}
		if (kind == token.STRING || kind == token.COMMENT) && len(text) >= unbroken {
			first := files.Position(at).Line
			for n := range strings.Count(text, "\n") + 1 {
				exempt[first+n] = true
			}
		}
	}
	for i, line := range strings.Split(string(source), "\n") {
		indent := len(line) - len(strings.TrimLeft(line, "\t"))
		columns := 4*indent + len([]rune(strings.Join(strings.Fields(line), " ")))
		if columns > maxColumns && !exempt[i+1] {
			found = append(found, i+1)
		}
	}
	return found
}
