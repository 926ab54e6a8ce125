// Fill rewrites the generated parts of Markdown pages:
//
//	fill BINARY FILE|FOLDER…
//
// It replaces the text between the markers <!-- generated:begin fairlead … --> and
// <!-- generated:end --> with the output of that command, run with BINARY as fairlead. Below
// <!-- generated:begin results FILE SUITE --> it writes a summary of that suite's output, which it
// reads from FILE, and below <!-- generated:begin instructions FILE --> the table of the figures in
// FILE (package vm).
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"fairlead/test/script"
	"fairlead/test/vm"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: fill BINARY FILE|FOLDER…")
		os.Exit(2)
	}
	if err := fill(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "fill:", err)
		os.Exit(1)
	}
}

func fill(binary string, roots []string) error {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	output := func(command string) ([]byte, error) {
		words := strings.Fields(command)
		if len(words) > 0 && words[0] == "results" {
			return script.Summary(".", command)
		}
		if len(words) == 2 && words[0] == "instructions" {
			return vm.Table(words[1])
		}
		if len(words) == 0 || words[0] != "fairlead" {
			return nil, errors.New("a generated part must come from a fairlead command, from results or from instructions")
		}
		cmd := exec.Command(binary, words[1:]...)
		cmd.Stderr = os.Stderr
		return cmd.Output()
	}
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".md" {
				return err
			}
			page, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			filled, err := script.Fill(page, output)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if bytes.Equal(page, filled) {
				return nil
			}
			return os.WriteFile(path, filled, 0o644)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
