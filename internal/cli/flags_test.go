package cli

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/cli/command"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// eachFlag calls fn for every flag of every command.
func eachFlag(fn func(*cobra.Command, *pflag.Flag)) {
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) { fn(c, f) })
		c.PersistentFlags().VisitAll(func(f *pflag.Flag) { fn(c, f) })
		for _, below := range c.Commands() {
			visit(below)
		}
	}
	visit(newRoot(&command.App{Out: command.NewPrinter(io.Discard), Err: command.NewPrinter(io.Discard),
		Log: os.Stderr}))
}

// TestSwitchesTakeNoValue: the help shows no value for a flag that takes none. pflag
// shows whatever is in backquotes.
func TestSwitchesTakeNoValue(t *testing.T) {
	eachFlag(func(c *cobra.Command, f *pflag.Flag) {
		if name, _ := pflag.UnquoteUsage(f); f.Value.Type() == "bool" && name != "" {
			t.Errorf("%s: the help shows --%s %s", c.CommandPath(), f.Name, name)
		}
	})
}

// TestGuideOfLaboratoryNamesItsFlags: every flag in the laboratory's guides exists.
func TestGuideOfLaboratoryNamesItsFlags(t *testing.T) {
	others := []string{"json", "network", "recursive"} // of iperf3, docker and wget
	known := map[string]bool{}
	eachFlag(func(_ *cobra.Command, f *pflag.Flag) { known[f.Name] = true })
	named := regexp.MustCompile("`--([a-z0-9-]+)|fairlead [^`\n|]*? --([a-z0-9-]+)")
	found := 0
	for _, page := range []string{"laboratory.md", "measuring.md", "real-machines.md", "web-site.md"} {
		text, err := os.ReadFile(filepath.Join("../../docs/guide", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range named.FindAllStringSubmatch(string(text), -1) {
			found++
			if name := strings.Join(match[1:], ""); !known[name] && !slices.Contains(others, name) {
				t.Errorf("%s names --%s, which no command has", page, name)
			}
		}
	}
	if found < 50 {
		t.Errorf("%d flags found in the guides", found)
	}
}
