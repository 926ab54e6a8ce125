// Package script reads the commands of the documentation, so that its test can run all of them, and
// replaces the generated tables between their markers. It does not run commands.
package script

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Command is one command of a page.
type Command struct {
	// Line is the number of the command's first line in the page.
	Line int
	// Text is what a reader types, with continuation lines joined.
	Text string
}

// Commands returns the commands of a Markdown page: the lines that begin with "$ " in its fenced
// console and sh blocks, and the commands in the cells of a table below the mark <!-- run -->. The
// other lines of such a block show output. A block without a command is an error, because a reader
// would think that its lines are commands, and no test would run them.
func Commands(page []byte) ([]Command, error) {
	var (
		found  []Command
		fence  string // the marks that close the open block
		shell  bool   // the open block contains commands
		opened int    // the line of the open block
		before int    // the commands found before it
		joins  bool   // the last line ended in a backslash
		table  bool   // the following lines are a table of commands
	)
	for i, line := range strings.Split(string(page), "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case fence == "":
			marks := trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, "`"))]
			if len(marks) < 3 {
				table = trimmed == runMark || table && strings.HasPrefix(trimmed, "|")
				if table {
					found = append(found, inline(i+1, trimmed)...)
				}
				continue
			}
			language := trimmed[len(marks):]
			fence, opened, before = marks, i+1, len(found)
			shell = slices.Contains([]string{"console", "sh", "shell", "bash"}, language)
		case trimmed == fence:
			if shell && len(found) == before {
				return nil, fmt.Errorf("line %d: the block holds no command: begin one with \"$ \", or mark the block text",
					opened)
			}
			fence, joins = "", false
		case !shell:
		case joins:
			last := &found[len(found)-1]
			var text string
			text, joins = strings.CutSuffix(trimmed, `\`)
			last.Text += " " + strings.TrimSpace(text)
		case strings.HasPrefix(trimmed, "$ "):
			var text string
			text, joins = strings.CutSuffix(trimmed[2:], `\`)
			found = append(found, Command{Line: i + 1, Text: strings.TrimSpace(text)})
		}
	}
	if fence != "" {
		return nil, fmt.Errorf("line %d: the block is never closed", opened)
	}
	return found, nil
}

// runMark precedes a table whose commands are run.
const runMark = "<!-- run -->"

// inline returns the fairlead commands in a line.
func inline(line int, text string) (found []Command) {
	for i, code := range strings.Split(text, "`") {
		if i%2 == 1 && strings.HasPrefix(code, "fairlead ") {
			found = append(found, Command{Line: line, Text: code})
		}
	}
	return found
}

// File is a file that a page shows completely.
type File struct {
	Name, Text string
	// Written is true if the page's commands write the file, and false if they read it.
	Written bool
}

// Files returns the files that a Markdown page shows, each as a fenced block below its mark: <!--
// file NAME --> for a file that commands read, and <!-- writes NAME --> for a file that they must
// have written.
func Files(page []byte) (found []File, err error) {
	lines := strings.Split(string(page), "\n")
	for i := 0; i < len(lines); i++ {
		words := strings.Fields(lines[i])
		if len(words) != 4 || words[0] != "<!--" || words[3] != "-->" || words[1] != "file" && words[1] != "writes" {
			continue
		}
		end := -1
		if i+1 < len(lines) && strings.HasPrefix(lines[i+1], "```") {
			end = slices.Index(lines[i+2:], "```")
		}
		if end < 0 {
			return nil, fmt.Errorf("line %d: no block with %s follows", i+1, words[2])
		}
		found = append(found, File{words[2], strings.Join(lines[i+2:i+2+end], "\n") + "\n", words[1] == "writes"})
		i += 2 + end
	}
	return found, nil
}

// Pages returns the Markdown files of a project's README and docs, in order. Generated man pages
// are not Markdown and not included.
func Pages(root string) ([]string, error) {
	pages := []string{filepath.Join(root, "README.md")}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list pages: %w", err)
	}
	if _, err := os.Stat(pages[0]); err != nil {
		return nil, fmt.Errorf("list pages: %w", err)
	}
	return pages, nil
}

const (
	beginMark = "<!-- generated:begin "
	endMark   = "<!-- generated:end -->"
)

// Fill replaces the text between the markers
//
//	<!-- generated:begin COMMAND -->
//	<!-- generated:end -->
//
// with what output returns for COMMAND.
func Fill(page []byte, output func(command string) ([]byte, error)) ([]byte, error) {
	var filled bytes.Buffer
	rest := page
	for {
		head, tail, found := bytes.Cut(rest, []byte(beginMark))
		filled.Write(head)
		if !found {
			return filled.Bytes(), nil
		}
		command, tail, found := bytes.Cut(tail, []byte(" -->\n"))
		if !found {
			return nil, fmt.Errorf("marker %q is not closed on its line", beginMark)
		}
		_, tail, found = bytes.Cut(tail, []byte(endMark))
		if !found {
			return nil, fmt.Errorf("marker of %q has no %s", command, endMark)
		}
		body, err := output(string(command))
		if err != nil {
			return nil, fmt.Errorf("run %q: %w", command, err)
		}
		fmt.Fprintf(&filled, "%s%s -->\n%s\n%s", beginMark, command, bytes.TrimSpace(body), endMark)
		rest = tail
	}
}
